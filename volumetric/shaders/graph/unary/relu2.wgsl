// The square of the positive part (Primer, arXiv 2109.08668).
fn value(x: f32) -> f32 { return select(x * x, 0.0, x <= 0.0); }
fn slope(x: f32) -> f32 { return select(2.0 * x, 0.0, x <= 0.0); }
