// Q5_K: as Q4_K with codes of 5 bits, whose fifth bits have a word for each piece behind the scales of the row.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = true;
const SCALED: bool = true;
const HALVES: bool = false;
const ROW_BLOCKS: u32 = (PIECES + 7u) / 8u;

struct Piece {
    low: vec4<u32>,
    high: u32,  // bit j of byte b is the fifth bit of code 4j + b
}

fn load_piece(row: u32, p: u32) -> Piece {
    return Piece(weights[row * PIECES + p], scales[row * GROUPS + 4u * ROW_BLOCKS + p]);
}

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_bytes(w: Piece, j: u32) -> u32 {
    return ((w.low[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu) | (((w.high >> j) & 0x01010101u) << 4u);
}

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
