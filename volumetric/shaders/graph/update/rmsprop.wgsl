// Slots: mean square, then the mean if CENTERED, then the velocity if there is a momentum.
fn moved(w: f32, g: f32, i: u32) -> f32 {
    let d = g + WEIGHT_DECAY * w;
    let square = ALPHA * old_0(i) + REST_ALPHA * d * d;
    keep_0(i, square);
    var spread = square;
    if (CENTERED) {
        let mean = ALPHA * old_1(i) + REST_ALPHA * d;
        keep_1(i, mean);
        spread = max(square - mean * mean, 0.0);
    }
    var step = d / (sqrt(spread) + EPS);
    if (MOMENTUM != 0.0) {
        if (CENTERED) {
            step += MOMENTUM * old_2(i);
            keep_2(i, step);
        } else {
            step += MOMENTUM * old_1(i);
            keep_1(i, step);
        }
    }
    return w - scalars[0] * step;
}
