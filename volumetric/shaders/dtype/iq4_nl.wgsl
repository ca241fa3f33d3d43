// IQ4_NL: value = step * table[code], codes of 4 bits in groups of 32. A piece is a group; `scales` has two steps a word.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = false;
const TABLE_0: u32 = 0xbfad9881u;
const TABLE_1: u32 = 0xf6eaddcfu;
const TABLE_2: u32 = 0x26190d01u;
const TABLE_3: u32 = 0x71594535u;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

// The values of four codes, each the low half of a byte, out of a table of 16 bytes.
fn look_up(codes: u32) -> u32 {
    let at = vec4<u32>(codes, codes >> 8u, codes >> 16u, codes >> 24u) & vec4<u32>(15u);
    let pairs = select(vec4<u32>(TABLE_0), vec4<u32>(TABLE_1), (at & vec4<u32>(4u)) != vec4<u32>(0u));
    let others = select(vec4<u32>(TABLE_2), vec4<u32>(TABLE_3), (at & vec4<u32>(4u)) != vec4<u32>(0u));
    let words = select(pairs, others, at >= vec4<u32>(8u));
    let bytes = (words >> ((at & vec4<u32>(3u)) << vec4<u32>(3u))) & vec4<u32>(255u);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

fn piece_bytes(w: Piece, j: u32) -> u32 { return look_up((w[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu); }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(piece_bytes(w, j))); }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    return vec2<f32>(unpack2x16float(scales[row * GROUPS + p / 2u])[p % 2u], 0.0);
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    return piece_scale(row, p).x * piece_part(load_piece(row, p), k4 % 8u);
}
