// Q4_0's rule: the number of largest magnitude becomes the most negative code, -HALF.
fn scale_of(g: Group) -> Scale {
    var n = number(g.first);
    n.negative = !n.negative;
    n.e -= i32(countTrailingZeros(HALF));
    let d = storable(single(n));
    return Scale(d.x, 0u, inverse_of(d.y), 0u);
}

fn held(bits: u32, s: Scale) -> u32 {
    let v = bitcast<f32>(single_product(bits, s.divisor)) + (f32(HALF) + 0.5);
    return scaled_code(i32(clamp(v, 0.0, f32(2u * HALF) - 0.5)) - i32(HALF), s.scale);
}
