// uint4 in groups of 32, value = scale * q + offset. A piece is a group, parts as in int4_g32. `scales` holds one word a
// group: the scale in its low half, the offset in its high half.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = true;
const HAS_OFFSET: bool = true;
const SCALED: bool = true;
const HALVES: bool = false;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 {
    let word = w[j / 2u];
    return select(word, word >> 4u, j % 2u == 1u) & 0x0f0f0f0fu;
}

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xU8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> { return unpack2x16float(scales[row * GROUPS + p]); }

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    let half = weights[row * PIECES + p][(k4 / 2u) % 4u] >> (16u * (k4 % 2u));
    let s = piece_scale(row, p);
    return s.x * vec4<f32>(vec4<u32>(half, half >> 4u, half >> 8u, half >> 12u) & vec4<u32>(15u)) + s.y;
}
