// Scalar 2 is 1 in the first update, whose velocity is the gradient.
fn moved(w: f32, g: f32, i: u32) -> f32 {
    let d = g + WEIGHT_DECAY * w;
    var v = d;
    if (scalars[2] == 0.0) { v = MOMENTUM * old_0(i) + REST_DAMPENING * d; }
    keep_0(i, v);
    return w - scalars[0] * select(v, d + MOMENTUM * v, NESTEROV);
}
