// Pieces of 32 codes of 5 bits: four of each as in `nibbles`, the fifth ones in a word of `scales` from FIFTHS_AT on.
struct Piece {
    low: vec4<u32>,
    high: u32,  // bit j of byte b is the fifth bit of code 4j + b
}

fn load_piece(row: u32, p: u32) -> Piece {
    return Piece(weights[row * PIECES + p], scales[row * GROUPS + FIFTHS_AT + p]);
}

fn five_bits(w: Piece, j: u32) -> u32 {
    return ((w.low[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu) | (((w.high >> j) & 0x01010101u) << 4u);
}
