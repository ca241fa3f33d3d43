// Powers of two with which the largest magnitude of each side is in 2^14 … 2^15, and their inverses. `largest` finds the
// exponents; a side with infinity or NaN is not scaled.
@group(0) @binding(4) var<storage, read> tops: array<vec4<u32>>;  // 64 parts of the left side, then of the right one

fn side_scales() -> vec4<f32> {
    let a = powers_of_side(0u);
    let b = powers_of_side(16u);
    return vec4<f32>(a.x, b.x, a.y, b.y);
}

fn powers_of_side(first: u32) -> vec2<f32> {
    var top = vec4<u32>(0u);
    for (var i = 0u; i < 16u; i++) { top = max(top, tops[first + i]); }
    return halving_powers(f32(max(max(top.x, top.y), max(top.z, top.w))));
}
