// float8_e5m2 (sign, 5 bits of exponent, 2 of mantissa): four numbers of a word. The bits move to their place in a float32
// and the exponent to its bias; below 2^-14, where the exponent is 0, this adds a leading 1, which is subtracted. The
// largest exponent is that of infinity and NaN.
fn float8(word: u32) -> vec4<f32> {
    let codes = vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u) & vec4<u32>(255u);
    let sizes = codes & vec4<u32>(127u);
    let normal = bitcast<vec4<f32>>((sizes << vec4<u32>(21u)) + vec4<u32>(0x38000000u));
    let value = select(normal, 2.0 * (normal - 0.000030517578125), sizes < vec4<u32>(4u));
    let odd = select(vec4<u32>(0u), vec4<u32>(0x7f800000u), sizes >= vec4<u32>(124u));
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(value) | odd | ((codes & vec4<u32>(128u)) << vec4<u32>(24u)));
}
