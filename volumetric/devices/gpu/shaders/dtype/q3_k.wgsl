// Q3_K: value = (step * scale) * (code - 4), a scale of 6 bits, less 32, for each 16 codes of 3 bits. The halves of a piece
// have a scale each; `scales` has a word of third bits for each piece of a row, three words with the scales of each 8
// pieces, and a step for each 8 pieces.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = true;
const SCALES_AT: u32 = 2u * LOADS;
const STEPS_AT: u32 = SCALES_AT + 3u * ((PIECES + 7u) / 8u);

struct Piece {
    low: vec4<u32>,
    high: u32,  // bit j of byte b is the third bit of code 4j + b
    factors: vec2<i32>,
}

fn load_piece(row: u32, p: u32) -> Piece {
    let at = row * GROUPS + SCALES_AT + p / 8u * 3u;
    let bit = p % 8u * 12u;
    let word = bit / 32u;
    let both = (scales[at + word] >> (bit % 32u)) | ((scales[at + min(1u + word, 2u)] << 1u) << (31u - bit % 32u));
    let factors = bitcast<vec2<i32>>(vec2<u32>(both, both >> 6u) & vec2<u32>(63u)) - 32;
    return Piece(two_bits(row, p), scales[row * GROUPS + p], factors);
}

fn half_weight(w: Piece, h: u32) -> i32 { return w.factors[h]; }

// Less 4 in each byte: the bit above the code keeps what is borrowed from reaching the next byte.
fn piece_bytes(w: Piece, j: u32) -> u32 {
    let code = low_bits(w.low, j) | (((w.high >> j) & 0x01010101u) << 2u);
    return ((code | 0x80808080u) - 0x04040404u) ^ 0x80808080u;
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
