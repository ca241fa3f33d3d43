// For each row of x what gemm applies as it reads x: (0, 1 / root mean square, 0), or (mean, 1 / standard deviation, what
// rounding took from the mean).
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;            // (rows, K4)
@group(0) @binding(1) var<storage, read_write> stats: array<vec4<f32>>;  // (rows)

const K4: u32 = (K + 3u) / 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let row = group.y;
    var mean = 0.0;
    if (NORM == 2u) {
        var sum = 0.0;
        for (var v = lid; v < K4; v += WG) { sum += dot(mask4(x[row * K4 + v], v, K), vec4<f32>(1.0)); }
        mean = team_sum(sum, lid, WG) / f32(K);
    }
    var rest = 0.0;
    var squares = 0.0;
    for (var v = lid; v < K4; v += WG) {
        let d = mask4(x[row * K4 + v] - mean, v, K);
        rest += dot(d, vec4<f32>(1.0));
        squares += dot(d, d);
    }
    var shift = 0.0;
    if (NORM == 2u) { shift = team_sum(rest, lid, WG) / f32(K); }
    let variance = variance_about(team_sum(squares, lid, WG) / f32(K), shift);
    if (lid == 0u && row < ctl.rows) { stats[row] = vec4<f32>(mean, inverseSqrt(variance + EPS), shift, 0.0); }
}
