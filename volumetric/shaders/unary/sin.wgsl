fn apply(x: f32) -> f32 { return turned(x, 0); }
