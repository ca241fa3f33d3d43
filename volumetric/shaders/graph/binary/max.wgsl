fn combine(a: f32, b: f32) -> f32 { return select(max(a, b), nan(), is_nan(a) || is_nan(b)); }
