// Codes of 8 bits that are floats, in groups of 32 with a float32 scale. A piece is half a group: 16 elements.
const PIECE: u32 = 16u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = false;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return float8(w[j]); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> { return vec2<f32>(bitcast<f32>(scales[row * GROUPS + p / 2u]), 0.0); }

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 4u;
    return piece_scale(row, p).x * float8(weights[row * PIECES + p][k4 % 4u]);
}
