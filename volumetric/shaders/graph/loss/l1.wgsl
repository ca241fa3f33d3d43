// |y - t|; the slope of 0 is 0, that of NaN is NaN.
fn term(y: f32, t: f32) -> vec2<f32> {
    let d = y - t;
    return vec2<f32>(abs(d), select(sign(d), d, is_nan(d)));
}
