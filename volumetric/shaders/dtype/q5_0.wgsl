// Q5_0: value = step * (code - 16), codes of 5 bits in groups of 32. A piece is a group; `scales` has a word of fifth
// bits for each piece of a row, then its steps, two a word.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = false;

struct Piece {
    low: vec4<u32>,
    high: u32,  // bit j of byte b is the fifth bit of code 4j + b
}

fn load_piece(row: u32, p: u32) -> Piece { return Piece(weights[row * PIECES + p], scales[row * GROUPS + p]); }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

// Less 16 in each byte: the bit above the code keeps what is borrowed from reaching the next byte.
fn piece_bytes(w: Piece, j: u32) -> u32 {
    let code = ((w.low[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu) | (((w.high >> j) & 0x01010101u) << 4u);
    return ((code | 0x80808080u) - 0x10101010u) ^ 0x80808080u;
}

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    return vec2<f32>(unpack2x16float(scales[row * GROUPS + PIECES + p / 2u])[p % 2u], 0.0);
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    return piece_scale(row, p).x * piece_part(load_piece(row, p), k4 % 8u);
}
