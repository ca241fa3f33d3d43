// columns[n, (c, taps), windows] from images[n, c, spatial]; 0 outside of the image.
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
    let row = at / dims.windows;
    let image = row / TAPS;
    let window = split3(at - row * dims.windows, dims.counts);
    let i = STRIDE * window + DILATION * tap_place(row % TAPS) - dims.before.xyz;  // wraps around below 0
    let inside = all(i < dims.size.xyz);
    let area = dims.size.x * dims.size.y * dims.size.z;
    let v = x[image * area + select(0u, join3(i, dims.size), inside)];
    y[at] = select(0.0, v, inside);
}
