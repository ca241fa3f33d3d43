// The transpose of unfold: each element of an image is the sum of its copies in the columns, taps in rising order.
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
    let start = image * TAPS * dims.windows;
    var sum = 0.0;
    for (var t = 0u; t < TAPS; t++) {
        let i = place - DILATION * tap_place(t);  // wraps around below 0
        let window = i / STRIDE;
        if (all(window < dims.counts.xyz) && all(window * STRIDE == i)) {
            sum += x[start + t * dims.windows + join3(window, dims.counts)];
        }
    }
    y[at] = sum;
}
