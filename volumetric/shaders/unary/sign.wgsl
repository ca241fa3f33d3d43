fn apply(x: f32) -> f32 { return select(sign(x), x, is_nan(x)); }
