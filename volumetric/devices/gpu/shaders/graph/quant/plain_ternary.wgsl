// -1, 0 or 1 without a scale: beyond a half.
fn held(bits: u32) -> u32 { return select(0u, 0x3f800000u | (bits & SIGN), magnitude(bits) > 0x3f000000u); }
