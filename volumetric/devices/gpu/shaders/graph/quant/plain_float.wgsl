// Floats without a scale: the nearest, saturating; NaN and infinities stay.
fn held(bits: u32) -> u32 {
    if (magnitude(bits) >= 0x7f800000u) { return bits; }
    let kind = Kind(CODE_BITS, CODE_LEAST, CODE_GREATEST);
    return saturated(nearest(number(bits), kind), kind);
}
