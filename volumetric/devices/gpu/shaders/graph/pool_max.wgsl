// The largest element of each window of images, and which tap it is: the first of equals; NaN is larger than all numbers.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> tap: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let start = dims.stride.xyz * split3(at % dims.windows, dims.counts) - dims.before.xyz;  // wraps around below 0
    let image = at / dims.windows * dims.size.x * dims.size.y * dims.size.z;
    var best = -infinity();
    var first = 0u;
    for (var t = 0u; t < dims.taps; t++) {
        let i = start + dims.dilation.xyz * split3(t, dims.kernel);
        if (all(i < dims.size.xyz)) {
            let v = x[image + join3(i, dims.size)];
            if ((is_nan(v) || v > best) && !is_nan(best)) {
                best = v;
                first = t;
            }
        }
    }
    y[at] = best;
    tap[at] = f32(first);
}
