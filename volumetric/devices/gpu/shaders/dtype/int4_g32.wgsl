// int4 (two's complement) in groups of 32 with a float16 scale. A piece is a group. Part 2j holds the even elements of
// word j, part 2j+1 the odd ones; nibbles stay in the high halves of bytes, sixteen times too large, and the scale makes
// up for it: sign extension costs nothing.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = true;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = false;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 {
    let word = w[j / 2u];
    return select(word << 4u, word, j % 2u == 1u) & 0xf0f0f0f0u;
}

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let at = row * GROUPS + p;
    return vec2<f32>(unpack2x16float(scales[at / 2u])[at % 2u] * 0.0625, 0.0);
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    let half = weights[row * PIECES + p][(k4 / 2u) % 4u] >> (16u * (k4 % 2u));
    let spread = vec4<u32>(half << 4u, half, half >> 4u, half >> 8u) & vec4<u32>(0xf0u);
    return piece_scale(row, p).x * vec4<f32>(bitcast<vec4<i32>>(spread << vec4<u32>(24u)) >> vec4<u32>(24u));
}
