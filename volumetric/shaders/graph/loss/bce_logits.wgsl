// max(y, 0) - y t + log(1 + exp(-|y|)), which neither overflows nor cancels.
fn term(y: f32, t: f32) -> vec2<f32> {
    return vec2<f32>(max(y, 0.0) - y * t + log_of_one_plus(exponential(-abs(y))), logistic(y) - t);
}
