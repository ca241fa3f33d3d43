// int8 in groups of 32 with a float16 scale. A piece is half a group: 16 elements. `scales` packs two halves a word.
const PIECE: u32 = 16u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = false;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 { return w[j]; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let at = row * GROUPS + p / 2u;
    return vec2<f32>(unpack2x16float(scales[at / 2u])[at % 2u], 0.0);
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 4u;
    return piece_scale(row, p).x * piece_part(weights[row * PIECES + p], k4 % 4u);
}
