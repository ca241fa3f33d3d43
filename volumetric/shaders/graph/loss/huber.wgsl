// d^2 / 2 where |d| <= DELTA, else DELTA (|d| - DELTA / 2), with d = y - t; both in one, as inside the slope is d.
fn term(y: f32, t: f32) -> vec2<f32> {
    let d = y - t;
    let s = select(clamp(d, -DELTA, DELTA), d, is_nan(d));
    return vec2<f32>(s * (d - 0.5 * s), s);
}
