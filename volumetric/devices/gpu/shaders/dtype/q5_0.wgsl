// Q5_0: value = step * (code - 16), codes of 5 bits in groups of 32. A piece is a group; `scales` has a word of fifth
// bits for each piece of a row, then its steps, two a word.
const FIFTHS_AT: u32 = 0u;

// Less 16 in each byte: the bit above the code keeps what is borrowed from reaching the next byte.
fn piece_bytes(w: Piece, j: u32) -> u32 { return ((five_bits(w, j) | 0x80808080u) - 0x10101010u) ^ 0x80808080u; }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    return vec2<f32>(unpack2x16float(scales[row * GROUPS + PIECES + p / 2u])[p % 2u], 0.0);
}
