// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks and Gimpel 2016.
fn inner(x: f32) -> f32 { return hyperbolic_tangent(0.7978845608028654 * (x + 0.044715 * x * x * x)); }
fn apply(x: f32) -> f32 { return 0.5 * x * (1.0 + inner(x)); }
fn slope(x: f32) -> f32 {
    let t = inner(x);
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 0.134145 * x * x);
}
