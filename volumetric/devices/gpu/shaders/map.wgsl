// y = apply(x), element by element; the function is a prelude, which may read dims.
struct Dims { alpha: f32, beta: f32 }

const dims = Dims(ALPHA, BETA);

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // (rows, WIDTH4)
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;  // (rows, WIDTH4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let i = group.x * WG + lid;
    if (group.y >= ctl.rows || i >= WIDTH4) { return; }
    let v = x[group.y * WIDTH4 + i];
    y[group.y * WIDTH4 + i] = vec4<f32>(apply(v.x), apply(v.y), apply(v.z), apply(v.w));
}
