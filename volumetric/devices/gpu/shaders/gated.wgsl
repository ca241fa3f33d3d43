// y = apply(x) * factor, element by element, or that within a limit (opened).
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // (rows, WIDTH4)
@group(0) @binding(1) var<storage, read> factor: array<vec4<f32>>;   // (rows, WIDTH4)
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;  // (rows, WIDTH4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let i = group.x * WG + lid;
    if (group.y >= ctl.rows || i >= WIDTH4) { return; }
    let v = x[group.y * WIDTH4 + i];
    let u = factor[group.y * WIDTH4 + i];
    y[group.y * WIDTH4 + i] = vec4<f32>(opened(v.x, u.x), opened(v.y, u.y), opened(v.z, u.z), opened(v.w, u.w));
}
