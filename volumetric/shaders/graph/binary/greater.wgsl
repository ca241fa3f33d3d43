fn combine(a: f32, b: f32) -> f32 { return select(0.0, 1.0, a > b); }
