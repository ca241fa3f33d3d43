// Q2_K: value = (step * scale) * code - (floor * min), scale and min of 4 bits for each 16 codes of 2 bits. A piece is a
// group; 16 bytes hold 64 codes: those of group g of four at bits 2g of all bytes. `scales` has a byte for each group of a
// row, its scale below its min, then a word with step and -floor for each 16 groups.
const PIECE: u32 = 16u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = true;
const SCALED: bool = true;
const HALVES: bool = false;
const LOADS: u32 = (PIECES + 3u) / 4u;
const PAIRS_AT: u32 = 4u * ((PIECES + 15u) / 16u);

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * LOADS + p / 4u] >> vec4<u32>(p % 4u * 2u); }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 { return w[j] & 0x03030303u; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xU8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let both = scales[row * GROUPS + p / 4u] >> (p % 4u * 8u);
    return unpack2x16float(scales[row * GROUPS + PAIRS_AT + p / 16u]) * vec2<f32>(vec2<u32>(both, both >> 4u) & vec2<u32>(15u));
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 4u;
    let s = piece_scale(row, p);
    return s.x * piece_part(load_piece(row, p), k4 % 4u) + s.y;
}
