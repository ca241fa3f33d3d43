fn apply(x: f32) -> f32 { return exponential(x); }
