// Q4_1's rule: d = (max - min) / LEVELS, offset = min. Numbers beyond half of float32's range count as its ends.
const HALF_RANGE: u32 = 0x7effffffu;

fn bounded(bits: u32) -> u32 { return (bits & SIGN) | min(magnitude(bits), HALF_RANGE); }

fn scale_of(g: Group) -> Scale {
    let low = storable(bounded(g.low));
    let spread = single_difference(bounded(g.high), low.y);
    let d = storable(single_quotient(select(spread, 0u, spread >= SIGN), single(number_of_integer(LEVELS))));
    return Scale(d.x, low.x, inverse_of(d.y), low.y);
}

fn held(bits: u32, s: Scale) -> u32 {
    let v = bitcast<f32>(single_product(single_difference(bounded(bits), s.start), s.divisor)) + 0.5;
    return affine_code(u32(clamp(v, 0.0, f32(LEVELS) + 0.5)), s.scale, s.offset);
}
