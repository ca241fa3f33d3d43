// Q3_NL: value = 2^(e - 22) * (1 + m / 8) * table[code], codes of 3 bits in groups of 32. `scales` has a word of third bits
// for each piece of a row, and a byte 8 e + m for each; byte 0 is a scale of 0.
struct Piece {
    low: vec4<u32>,
    high: u32,  // bit j of byte b is the third bit of code 4j + b
}

fn load_piece(row: u32, p: u32) -> Piece { return Piece(two_bits(row, p), scales[row * GROUPS + p]); }

// -127, -70, -38, -12 and the same above 0.
fn piece_bytes(w: Piece, j: u32) -> u32 {
    let codes = low_bits(w.low, j) | (((w.high >> j) & 0x01010101u) << 2u);
    let at = vec4<u32>(codes, codes >> 8u, codes >> 16u, codes >> 24u) & vec4<u32>(7u);
    let words = select(vec4<u32>(0xf4daba81u), vec4<u32>(0x7f46260cu), at >= vec4<u32>(4u));
    let bytes = (words >> ((at & vec4<u32>(3u)) << vec4<u32>(3u))) & vec4<u32>(255u);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

// The bits of a float32 but for the sign and what is 0, its exponent 105 less.
fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let byte = (scales[row * GROUPS + 2u * LOADS + p / 4u] >> (p % 4u * 8u)) & 255u;
    return vec2<f32>(select(bitcast<f32>((byte + 840u) << 20u), 0.0, byte == 0u), 0.0);
}
