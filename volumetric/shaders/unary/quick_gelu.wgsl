// x sigmoid(1.702 x), Hendrycks and Gimpel 2016.
fn apply(x: f32) -> f32 { return x * logistic(1.702 * x); }
fn slope(x: f32) -> f32 {
    let s = logistic(1.702 * x);
    return s * (1.0 + 1.702 * x * (1.0 - s));
}
