fn apply(x: f32) -> f32 { return dims.alpha * x + dims.beta; }
