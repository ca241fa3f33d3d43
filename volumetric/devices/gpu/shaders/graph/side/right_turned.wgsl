// Fragments of a right side whose rows in the tile are k.
fn right_fragment(n: u32, k: u32) -> Right { return load_right_turned(B_TILE + 16u * k * B_STRIDE + n / 4u, B_STRIDE); }
