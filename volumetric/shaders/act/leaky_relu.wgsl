fn act(x: f32) -> f32 { return select(0.01 * x, x, x >= 0.0); }
