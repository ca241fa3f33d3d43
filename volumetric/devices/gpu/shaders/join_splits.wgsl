// The sums of the partial products of `matrix_gemm`, in the order of the splits, and what follows them.
@group(0) @binding(0) var<storage, read> splits: array<vec4<f32>>;   // (SPLITS, ROWS, PARTS, N4)
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;     // (PARTS, N4)
@group(0) @binding(6) var<storage, read_write> y: array<vec4<f32>>;  // (rows, N4)

const N4: u32 = (N + 3u) / 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let m = group.y;
    let n = FIRST / 4u + group.x * WG + lid;
    if (m >= ctl.rows || n >= (FIRST + UNITS + 3u) / 4u) { return; }
    var gate = vec4<f32>(0.0);
    var up = vec4<f32>(0.0);
    //@unroll
    for (var s = 0u; s < SPLITS; s++) {
        let at = (s * ROWS + m) * PARTS * N4 + n;
        gate += splits[at];
        if (PARTS == 2u) { up += splits[at + N4]; }
    }
    finish(m, n, 0u, gate, up);
}
