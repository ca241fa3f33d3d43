// Q8_0's rule: d = max |x| / 127, code = x / d rounded half away from zero.
fn scale_of(g: Group) -> Scale {
    let d = storable(single_quotient(g.peak, 0x42fe0000u));
    return Scale(d.x, 0u, inverse_of(d.y), 0u);
}

fn held(bits: u32, s: Scale) -> u32 {
    let v = clamp(bitcast<f32>(single_product(bits, s.divisor)), -127.0, 127.0);
    let whole = trunc(v);
    let rest = v - whole;
    return scaled_code(i32(whole + trunc(rest + rest)), s.scale);
}
