// By what queries of a position are multiplied, which may grow with it.
fn warmth(position: u32) -> f32 {
    if (WARMTH == 0.0) { return 1.0; }
    return 1.0 + WARMTH * log(1.0 + f32((position + 1u) / WARMER_EVERY));
}
