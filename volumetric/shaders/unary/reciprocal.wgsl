fn apply(x: f32) -> f32 { return 1.0 / x; }
