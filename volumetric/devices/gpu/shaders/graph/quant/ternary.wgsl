// BitNet b1.58: scale = mean |x|, codes -1, 0, 1; a group of 0 and +-a alone keeps its a.
fn scale_of(g: Group) -> Scale {
    var mean = number(g.peak);
    if (g.mixed) { mean = short(double(over(double(g.total), number_of_integer(g.size)))); }
    let s = stored(mean);
    var half = number(s);
    half.e -= 1;
    return Scale(s, 0u, single(half), 0u);
}

fn held(bits: u32, s: Scale) -> u32 {
    if (magnitude(bits) <= s.divisor) { return 0u; }
    return s.scale | (bits & SIGN);
}
