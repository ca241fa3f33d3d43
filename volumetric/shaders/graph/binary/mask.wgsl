// a where b is not 0, else minus infinity.
fn combine(a: f32, b: f32) -> f32 { return select(a, -infinity(), b == 0.0); }
