// Combine the partial results of attend_split into the heads' outputs. K counts padded heads; y holds them packed.
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // (rows, Y_STRIDE)

const K4: u32 = K / 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let v = group.x * WG + lid;
    if (v >= K4) { return; }
    let value = x_load4(group.y, v);
    let d = 4u * v % HEAD_DIM;
    let at = group.y * Y_STRIDE + 4u * v / HEAD_DIM * TRUE_DIM + d;
    y[at] = value.x;
    if (d + 1u < TRUE_DIM) { y[at + 1u] = value.y; }
    if (d + 2u < TRUE_DIM) { y[at + 2u] = value.z; }
    if (d + 3u < TRUE_DIM) { y[at + 3u] = value.w; }
}
