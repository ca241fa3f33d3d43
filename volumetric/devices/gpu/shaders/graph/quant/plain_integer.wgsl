// Integers without a scale: the nearest from -LEAST to LEVELS.
fn held(bits: u32) -> u32 {
    let negative = bits >= SIGN;
    let code = integer(long(number(bits)), select(LEVELS, LEAST, negative));
    var n = number_of_integer(code);
    n.negative = negative;
    return select(single(n), 0u, code == 0u);
}
