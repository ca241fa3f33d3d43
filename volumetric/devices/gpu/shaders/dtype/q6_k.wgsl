// Q6_K: value = (step * scale) * (code - 32), a scale in int8 for each 16 codes of 6 bits. The halves of a piece have
// a scale each; `scales` has two words of high bits for each piece of a row, then its scales, then a step for each 8 pieces.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = true;
const SCALES_AT: u32 = 2u * PIECES;
const ROW_BLOCKS: u32 = (PIECES + 7u) / 8u;
const STEPS_AT: u32 = SCALES_AT + 4u * ROW_BLOCKS;

struct Piece {
    low: vec4<u32>,
    high: vec2<u32>,  // bits 2j, 2j + 1 of byte b of word h are the high bits of code 16h + 4j + b
    factors: vec2<i32>,
}

fn load_piece(row: u32, p: u32) -> Piece {
    let at = row * GROUPS;
    let both = bitcast<i32>(scales[at + SCALES_AT + p / 2u] << (16u - p % 2u * 16u));
    return Piece(
        weights[row * PIECES + p],
        vec2<u32>(scales[at + 2u * p], scales[at + 2u * p + 1u]),
        vec2<i32>((both << 8u) >> 24u, both >> 24u),
    );
}

fn half_weight(w: Piece, h: u32) -> i32 { return w.factors[h]; }

// Less 32 in each byte: the bit above the code keeps what is borrowed from reaching the next byte.
fn piece_bytes(w: Piece, j: u32) -> u32 {
    let low = (w.low[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu;
    let code = low | (((w.high[j / 4u] >> (j % 4u * 2u)) & 0x03030303u) << 4u);
    return ((code | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

fn piece_part(w: Piece, j: u32) -> vec4<f32> {
    return f32(w.factors[j / 4u]) * vec4<f32>(unpack4xI8(piece_bytes(w, j)));
}

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let block = p / 8u;
    return vec2<f32>(unpack2x16float(scales[row * GROUPS + STEPS_AT + block / 2u])[block % 2u], 0.0);
}

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    return piece_scale(row, p).x * piece_part(load_piece(row, p), k4 % 8u);
}
