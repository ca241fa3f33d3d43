// Q5_1: value = step * code + floor, codes of 5 bits in groups of 32. A piece is a group; `scales` has a word of fifth
// bits for each piece of a row, then a word with step and floor for each.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = true;
const SCALED: bool = true;
const HALVES: bool = false;

struct Piece {
    low: vec4<u32>,
    high: u32,  // bit j of byte b is the fifth bit of code 4j + b
}

fn load_piece(row: u32, p: u32) -> Piece { return Piece(weights[row * PIECES + p], scales[row * GROUPS + p]); }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 {
    return ((w.low[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu) | (((w.high >> j) & 0x01010101u) << 4u);
}

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xU8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> { return unpack2x16float(scales[row * GROUPS + PIECES + p]); }

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    let s = piece_scale(row, p);
    return s.x * piece_part(load_piece(row, p), k4 % 8u) + s.y;
}
