// y = apply(x), then the soft cap where there is one, element by element.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // (rows, WIDTH4)
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;  // (rows, WIDTH4)

fn one(v: f32) -> f32 {
    let a = apply(v);
    if (SOFTCAP > 0.0) { return soft_cap(a, SOFTCAP); }
    return a;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let i = group.x * WG + lid;
    if (group.y >= ctl.rows || i >= WIDTH4) { return; }
    let v = x[group.y * WIDTH4 + i];
    y[group.y * WIDTH4 + i] = vec4<f32>(one(v.x), one(v.y), one(v.z), one(v.w));
}
