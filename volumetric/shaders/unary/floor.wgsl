fn apply(x: f32) -> f32 { return select(floor(x), x, is_nan(x)); }
