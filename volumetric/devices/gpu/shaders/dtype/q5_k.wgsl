// Q5_K: as Q4_K with codes of 5 bits, whose fifth bits have a word for each piece behind the scales of the row.
const FIFTHS_AT: u32 = 4u * ((PIECES + 7u) / 8u);

fn piece_bytes(w: Piece, j: u32) -> u32 { return five_bits(w, j); }
