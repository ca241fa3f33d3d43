// -t log y - (1 - t) log(1 - y); logarithms stop at -100.
fn term(y: f32, t: f32) -> vec2<f32> {
    let v = -(t * max(logarithm(y), -100.0) + (1.0 - t) * max(logarithm(1.0 - y), -100.0));
    return vec2<f32>(v, (y - t) / max(y * (1.0 - y), 1e-12));
}
