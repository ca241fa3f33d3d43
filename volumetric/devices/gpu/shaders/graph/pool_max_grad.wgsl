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
    let place = split3(at % area, dims.size) + dims.before.xyz;
    let start = at / area * dims.windows;
    let seen = windows_of(place);
    let many = vec4<u32>(seen.many, 0u);
    let last = seen.first + seen.many - 1u;
    var sum = 0.0;
    // From the last window to the first, which is the order of their taps.
    //@rounds ((dims.kernel.x - 1) * dims.dilation.x / dims.stride.x + 1) * ((dims.kernel.y - 1) * dims.dilation.y / dims.stride.y + 1) * ((dims.kernel.z - 1) * dims.dilation.z / dims.stride.z + 1)
    for (var n = 0u; n < many.x * many.y * many.z; n++) {
        let window = last - split3(n, many);
        let i = place - window * dims.stride.xyz;
        let t = i / dims.dilation.xyz;
        if (all(t * dims.dilation.xyz == i)) {
            let w = start + join3(window, dims.counts);
            if (u32(tap[w]) == join3(t, dims.kernel)) { sum += g[w]; }
        }
    }
    y[at] = sum;
}
