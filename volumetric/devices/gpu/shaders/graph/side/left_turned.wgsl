// Fragments of a left side whose rows in the tile are k.
fn left_fragment(m: u32, k: u32) -> Left { return load_left_turned(16u * k * A_STRIDE + m / 4u, A_STRIDE); }
