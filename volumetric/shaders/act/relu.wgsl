fn act(x: f32) -> f32 {
    let bits = bitcast<u32>(x);  // of a comparison with 0 some compilers make a maximum, which drops NaN
    return select(x, 0.0, bits > 0x80000000u && bits <= 0xff800000u);
}
