// Fragments of a right side whose rows in the tile are n.
fn right_fragment(n: u32, k: u32) -> Right { return load_right(B_TILE + n * B_STRIDE + 4u * k, B_STRIDE); }
