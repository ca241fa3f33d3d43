// Fragments of a left side whose rows in the tile are m.
fn left_fragment(m: u32, k: u32) -> Left { return load_left(m * A_STRIDE + 4u * k, A_STRIDE); }
