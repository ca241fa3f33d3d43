// The square of the positive part (Primer, arXiv 2109.08668). NaN is kept by its bits, as in relu.
fn value(x: f32) -> f32 { return select(select(x * x, 0.0, x <= 0.0), x, is_nan(x)); }
fn slope(x: f32) -> f32 { return select(select(2.0 * x, 0.0, x <= 0.0), x, is_nan(x)); }
