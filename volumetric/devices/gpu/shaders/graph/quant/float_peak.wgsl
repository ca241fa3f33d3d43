// Small floats: the largest finite magnitude of a group maps to the type's greatest number.
fn scale_of(g: Group) -> Scale {
    var s = 0u;
    if (g.peak != 0u) { s = stored(ratio(number(g.peak), number(CODE.greatest))); }
    if (g.odd && s == 0u) { s = 0x3f800000u; }
    return Scale(s, 0u, select(s, 0x3f800000u, s == 0u), 0u);
}

fn held(bits: u32, s: Scale) -> u32 {
    if (magnitude(bits) >= 0x7f800000u) { return bits; }
    let code = saturated(nearest(number(single_quotient(bits, s.divisor)), CODE), CODE);
    if (magnitude(code) == 0u || s.scale == 0u) { return code & SIGN; }
    return saturated(single_product(code, s.scale), SINGLE);
}
