// y = combine(a, b), element by element; the function is a prelude.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;        // (rows, WIDTH4)
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;        // (rows, WIDTH4)
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;  // (rows, WIDTH4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let v = group.x * WG + lid;
    if (group.y >= ctl.rows || v >= WIDTH4) { return; }
    let at = group.y * WIDTH4 + v;
    let l = a[at];
    let r = b[at];
    y[at] = vec4<f32>(combine(l.x, r.x), combine(l.y, r.y), combine(l.z, r.z), combine(l.w, r.w));
}
