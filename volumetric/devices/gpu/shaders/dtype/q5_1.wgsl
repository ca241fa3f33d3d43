// Q5_1: value = step * code + floor, codes of 5 bits in groups of 32. A piece is a group; `scales` has a word of fifth
// bits for each piece of a row, then a word with step and floor for each.
const FIFTHS_AT: u32 = 0u;

fn piece_bytes(w: Piece, j: u32) -> u32 { return five_bits(w, j); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> { return unpack2x16float(scales[row * GROUPS + PIECES + p]); }
