// The gradient of what pool_max took: each element is the sum of g of the windows whose largest element it is.
@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> tap: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

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
            let w = start + select(0u, seen.window, sees);
            v[c] = select(0.0, g[w], sees && u32(tap[w]) == seen.tap);
        }
        //@unroll
        for (var c = 0u; c < CHUNK; c++) { sum += v[c]; }
    }
    y[at] = sum;
}
