// int16 and int32: max |x| maps to LEVELS; with POWER_OF_TWO, scales are the power of two that maps it to at most that.
fn scale_of(g: Group) -> Scale {
    let peak = number(g.peak);
    var s = 0u;
    if (peak.m != 0u) {
        if (POWER_OF_TWO) {
            s = stored(Num(false, peak.e + 1 - i32(EXPONENT), SIGN));
        } else {
            s = stored(short(double(over(long(peak), number_of_integer(LEVELS)))));
        }
    }
    return Scale(s, 0u, select(s, 0x3f800000u, s == 0u), 0u);
}

fn held(bits: u32, s: Scale) -> u32 {
    let n = number(bits);
    if (n.m == 0u || s.scale == 0u) { return 0u; }
    let code = integer(over(long(n), number(s.divisor)), LEVELS);
    if (code == 0u) { return 0u; }
    return scaled_code(select(i32(code), -i32(code), n.negative), s.scale);
}
