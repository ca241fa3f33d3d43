// c = apply(sum of the partial products + bias), in the order of the splits.
struct Dims {
    count: u32, n: u32, splits: u32,
    each: u32,  // elements of c that share a bias of n: all, or a group
}

@group(0) @binding(0) var<storage, read> parts: array<f32>;  // (splits, count)
@group(0) @binding(1) var<storage, read> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let begin = flat_group(group, groups) * WG;
    let at = begin + lid;
    if (is_idle(begin, min(begin + WG, dims.count)) || at >= dims.count) { return; }
    var v = 0.0;
    for (var s = 0u; s < dims.splits; s++) { v += parts[s * dims.count + at]; }
    if (BIAS) { v += bias[at / dims.each * dims.n + at % dims.n]; }
    c[at] = apply(v);
}
