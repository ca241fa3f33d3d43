fn act(x: f32) -> f32 { return max(x, 0.0); }
