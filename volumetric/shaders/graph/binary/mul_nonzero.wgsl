// 0 where b is 0, whatever a is.
fn combine(a: f32, b: f32) -> f32 { return select(a * b, 0.0, b == 0.0); }
