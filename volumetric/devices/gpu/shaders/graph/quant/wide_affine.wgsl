// uint16 and uint32: min maps to 0 and max to LEVELS, in float64's arithmetic; POWER_OF_TWO as for signed codes.
fn above(bits: u32, offset: u32) -> Long { return double(plus(long(number(bits)), long(number(offset ^ SIGN)))); }

fn scale_of(g: Group) -> Scale {
    let offset = saturated(nearest(number(g.low), SCALE), SCALE);
    let peak = above(g.high, offset);
    var s = 0u;
    if (peak.hi != 0u && !peak.negative) {
        if (POWER_OF_TWO) {
            s = stored(Num(false, peak.e + 1 - i32(EXPONENT), SIGN));
        } else {
            s = stored(short(double(over(peak, number_of_integer(LEVELS)))));
        }
    }
    return Scale(s, offset, select(s, 0x3f800000u, s == 0u), 0u);
}

fn held(bits: u32, s: Scale) -> u32 {
    let n = above(bits, s.offset);
    var code = 0u;
    if (n.hi != 0u && !n.negative) { code = integer(double(over(n, number(s.divisor))), LEVELS); }
    return affine_code(code, s.scale, s.offset);
}
