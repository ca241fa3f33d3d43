// float8_e4m3fn (sign, 4 bits of exponent, 3 of mantissa; no infinity): four numbers of a word. The bits move to their place
// in a float32 and the exponent to its bias; below 2^-6, where the exponent is 0, this adds a leading 1, which is
// subtracted.
fn float8(word: u32) -> vec4<f32> {
    let codes = vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(255u);
    let sizes = codes & vec4<u32>(127u);
    let normal = bitcast<vec4<f32>>((sizes << vec4<u32>(20u)) + vec4<u32>(0x3c000000u));
    let value = select(normal, 2.0 * (normal - 0.0078125), sizes < vec4<u32>(8u));
    let bits = bitcast<vec4<u32>>(value) | ((codes & vec4<u32>(128u)) << vec4<u32>(24u));
    return bitcast<vec4<f32>>(select(bits, vec4<u32>(0x7fc00000u), sizes == vec4<u32>(127u)));
}
