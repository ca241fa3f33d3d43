// Slots: mean square, then the mean if CENTERED, then the velocity if there is a momentum.
fn moved(w: f32, g: f32, i: u32) -> f32 {
    let d = g + WEIGHT_DECAY * w;
    let square = ALPHA * slot_0[i] + REST_ALPHA * d * d;
    slot_0[i] = square;
    var spread = square;
    if (CENTERED) {
        let mean = ALPHA * slot_1[i] + REST_ALPHA * d;
        slot_1[i] = mean;
        spread = max(square - mean * mean, 0.0);
    }
    var step = d / (sqrt(spread) + EPS);
    if (MOMENTUM != 0.0) {
        if (CENTERED) {
            step += MOMENTUM * slot_2[i];
            slot_2[i] = step;
        } else {
            step += MOMENTUM * slot_1[i];
            slot_1[i] = step;
        }
    }
    return w - scalars[0] * step;
}
