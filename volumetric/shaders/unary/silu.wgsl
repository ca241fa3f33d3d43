fn apply(x: f32) -> f32 { return x * logistic(x); }
fn slope(x: f32) -> f32 {
    let s = logistic(x);
    return s * (1.0 + x * (1.0 - s));
}
