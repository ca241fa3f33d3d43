// Turn elements i and i + HALF of the first 2 HALF of each head by the angle of their position; the rest passes.
struct Dims { count: u32, length: u32, heads: u32, width: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;        // (batch, length, heads, width)
@group(0) @binding(1) var<storage, read> cosines: array<f32>;  // (length, HALF)
@group(0) @binding(2) var<storage, read> sines: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let i = at % dims.width;
    if (i >= 2u * HALF) { y[at] = x[at]; return; }
    let second = i >= HALF;
    let angle = at / dims.width / dims.heads % dims.length * HALF + select(i, i - HALF, second);
    let other = x[select(at + HALF, at - HALF, second)];
    y[at] = x[at] * cosines[angle] + select(-other, other, second != BACK) * sines[angle];
}
