// x Phi(x) with erf from Abramowitz and Stegun 7.1.26: absolute error below 1.5e-7.
fn act(x: f32) -> f32 {
    let z = abs(x) * 0.7071067811865476;
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    let tail = 0.5 * p * exp(-z * z);
    return x * select(tail, 1.0 - tail, x >= 0.0);
}
