// NaN is kept by its bits: drivers turn a choice between x and 0 into max(x, 0), which drops it.
fn value(x: f32) -> f32 { return select(select(x, 0.0, x <= 0.0), x, is_nan(x)); }
fn slope(x: f32) -> f32 { return select(0.0, 1.0, x > 0.0); }
