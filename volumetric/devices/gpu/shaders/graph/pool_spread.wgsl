// The transpose of pool_sum: each element is the sum of the windows that see it.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let area = dims.size.x * dims.size.y * dims.size.z;
    let image = at / area;
    let place = split3(at - image * area, dims.size) + dims.before.xyz;
    let start = image * dims.windows;
    var sum = 0.0;
    for (var n = 0u; n < SEEN; n += CHUNK) {
        var v: array<f32, CHUNK>;
        //@unroll
        for (var c = 0u; c < CHUNK; c++) {
            let seen = sight(n + c, place);
            let sees = seen.sees && n + c < SEEN;
            v[c] = select(0.0, x[start + select(0u, seen.window, sees)], sees);
        }
        //@unroll
        for (var c = 0u; c < CHUNK; c++) { sum += v[c]; }
    }
    y[at] = sum;
}
