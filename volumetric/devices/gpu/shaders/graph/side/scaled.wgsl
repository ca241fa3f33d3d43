// Powers of two with which the largest magnitude of each side is in 2^14 … 2^15, and their inverses. `largest` finds the
// exponents; a side with infinity or NaN is not scaled.
@group(0) @binding(4) var<storage, read> tops: array<vec4<u32>>;  // 64 parts of the left side, then of the right one

fn side_scales() -> vec4<f32> {
    let a = shift_of(0u);
    let b = shift_of(16u);
    return vec4<f32>(power_of_two(-a), power_of_two(-b), power_of_two(a), power_of_two(b));
}

fn shift_of(first: u32) -> i32 {
    var top = vec4<u32>(0u);
    for (var i = 0u; i < 16u; i++) { top = max(top, tops[first + i]); }
    let whole = max(max(top.x, top.y), max(top.z, top.w));
    return select(0, clamp(i32(whole) - 141, -126, 126), whole > 0u && whole < 255u);
}

fn power_of_two(exponent: i32) -> f32 { return bitcast<f32>(u32(127 + exponent) << 23u); }
