// uint8 in groups of 32 with a float16 scale and offset, which share a word. A piece is half a group: 16 elements, less 128,
// so that they are int8; the offset makes up for it.
const PIECE: u32 = 16u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = true;
const SCALED: bool = true;
const HALVES: bool = false;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 { return w[j] ^ 0x80808080u; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let both = unpack2x16float(scales[row * GROUPS + p / 2u]);
    return vec2<f32>(both.x, both.y + 128.0 * both.x);
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let both = unpack2x16float(scales[row * GROUPS + k4 / 8u]);
    return both.x * vec4<f32>(unpack4xU8(weights[row * PIECES + k4 / 4u][k4 % 4u])) + both.y;
}
