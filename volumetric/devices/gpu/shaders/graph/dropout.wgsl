// y = x / (1 - p) for the elements that stay, else 0. Which stay is a hash of the element's number, the layer's stream
// and the two words of the key.
struct Dims { count: u32, stream: u32, threshold: u32, factor: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> key: array<u32>;
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
    let chance = hashed(vec4<u32>(at, dims.stream, key[0], key[1])) >> 8u;
    y[at] = select(0.0, x[at] * dims.factor, chance >= dims.threshold);
}
