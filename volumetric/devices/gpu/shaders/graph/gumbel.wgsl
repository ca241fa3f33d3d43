// y = x - log(-log u): u is a hash of the place in the row, the row's position and the seed, of 23 bits and never 0 or 1.
struct Dims { count: u32, width: u32, low: u32, high: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> positions: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let u = chance_of(hashed(vec4<u32>(at % dims.width, positions[at / dims.width], dims.low, dims.high)));
    y[at] = x[at] - logarithm(-logarithm(u));
}
