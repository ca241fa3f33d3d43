fn apply(x: f32) -> f32 { return logistic(x); }
fn slope(x: f32) -> f32 {
    let s = logistic(x);
    return s * (1.0 - s);
}
