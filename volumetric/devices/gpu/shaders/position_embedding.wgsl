// y[m] = x[m] + W[position of m + OFFSET]; rows of W beyond its end add nothing.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // (rows, K4)
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;  // (LIMIT, PIECES)
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // (rows, K4)

const K4: u32 = (K + 3u) / 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let m = group.y;
    let k4 = group.x * WG + lid;
    if (m >= ctl.rows || k4 >= K4) { return; }
    let at = row_place(m).x + OFFSET;
    y[m * K4 + k4] = x[m * K4 + k4] + select(vec4<f32>(0.0), w_load4(min(at, LIMIT - 1u), k4), at < LIMIT);
}
