// Scalars 2 and 3 are 1 / (1 - BETA1^t) and 1 / sqrt(1 - BETA2^t). Decay belongs to the gradient, which adamw keeps apart.
fn moved(w: f32, grad: f32, i: u32) -> f32 {
    let g = grad + WEIGHT_DECAY * w;
    let m = BETA1 * old_0(i) + REST_BETA1 * g;
    let v = BETA2 * old_1(i) + REST_BETA2 * g * g;
    keep_0(i, m);
    keep_1(i, v);
    return w - scalars[0] * scalars[2] * m / (sqrt(v) * scalars[3] + EPS);
}
