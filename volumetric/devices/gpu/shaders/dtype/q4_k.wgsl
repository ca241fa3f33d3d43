// Q4_K: value = (step * scale) * code - (floor * min), scale and min for each 32 codes of 4 bits. `scales` has 4 words for
// each 8 pieces.
fn piece_bytes(w: Piece, j: u32) -> u32 { return (w[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu; }
