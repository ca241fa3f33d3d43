// Copy columns FROM … FROM + WIDTH of x into columns AT … AT + WIDTH of y.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, X_STRIDE)
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // (rows, Y_STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let i = group.x * WG + lid;
    if (group.y >= ctl.rows || i >= WIDTH) { return; }
    y[group.y * Y_STRIDE + AT + i] = x[group.y * X_STRIDE + FROM + i];
}
