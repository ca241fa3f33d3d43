// -1 or 1 without a scale: the sign, that of zero being positive.
fn held(bits: u32) -> u32 { return 0x3f800000u | select(0u, SIGN, bits > SIGN); }
