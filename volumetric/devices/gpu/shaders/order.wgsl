// Floats as integers of the same order: -0 equals 0, and NaN has the lowest place.
fn place_of(v: f32) -> u32 {
    let bits = bitcast<u32>(v);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0u; }
    if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; }
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}
