// Q4_K: value = (step * scale) * code - (floor * min), scale and min for each 32 codes of 4 bits. A piece has codes i and
// 16 + i in the low and high half of byte i; `scales` has 4 words for each 8 pieces.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = true;
const SCALED: bool = true;
const HALVES: bool = false;

alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 { return (w[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xU8(piece_bytes(w, j))); }

// Step and -floor of a block of 8 pieces, times scale and min of one, 6 bits each from bit 12 p of three words on.
fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let at = row * GROUPS + p / 8u * 4u;
    let bit = p % 8u * 12u;
    let word = bit / 32u;
    let both = (scales[at + 1u + word] >> (bit % 32u)) | ((scales[at + min(2u + word, 3u)] << 1u) << (31u - bit % 32u));
    return unpack2x16float(scales[at]) * vec2<f32>(vec2<u32>(both, both >> 6u) & vec2<u32>(63u));
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    let s = piece_scale(row, p);
    return s.x * piece_part(load_piece(row, p), k4 % 8u) + s.y;
}
