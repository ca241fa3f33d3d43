fn apply(x: f32) -> f32 { return hyperbolic_tangent(x); }
fn slope(x: f32) -> f32 {
    let t = hyperbolic_tangent(x);
    return 1.0 - t * t;
}
