// float32 rows. A piece is 16 bytes of a row: 4 elements.
const PIECE: u32 = 4u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = false;
const HALVES: bool = false;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return bitcast<vec4<f32>>(w); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> { return vec2<f32>(1.0, 0.0); }

fn w_load4(row: u32, k4: u32) -> vec4<f32> { return bitcast<vec4<f32>>(weights[row * PIECES + k4]); }
