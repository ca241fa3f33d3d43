// RMS norm or layer norm of each of GROUPS equal parts of a row; a workgroup a part.
@group(0) @binding(0) var<storage, read> x: array<f32>;            // (rows, STRIDE)
@group(0) @binding(1) var<storage, read> norm_params: array<f32>;  // gain (STRIDE), then bias
@group(0) @binding(2) var<storage, read_write> y: array<f32>;      // (rows, STRIDE)

const STRIDE: u32 = (GROUPS * WIDTH + 3u) / 4u * 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE + group.x * WIDTH;
    var mean = 0.0;
    if (NORM == 2u) {
        var sum = 0.0;
        for (var i = lid; i < WIDTH; i += WG) { sum += x[start + i]; }
        mean = team_sum(sum, lid, WG) / f32(WIDTH);
    }
    var rest = 0.0;
    var squares = 0.0;
    for (var i = lid; i < WIDTH; i += WG) {
        let d = x[start + i] - mean;
        rest += d;
        squares += d * d;
    }
    var shift = 0.0;  // what rounding took from the mean
    if (NORM == 2u) { shift = team_sum(rest, lid, WG) / f32(WIDTH); }
    let rstd = inverseSqrt(variance_about(team_sum(squares, lid, WG) / f32(WIDTH), shift) + EPS);
    for (var i = lid; i < WIDTH; i += WG) {
        var v = ((x[start + i] - mean) - shift) * rstd;
        if (HAS_NORM_WEIGHT) { v *= norm_params[group.x * WIDTH + i] + NORM_UNIT; }
        if (HAS_NORM_BIAS) { v += norm_params[STRIDE + group.x * WIDTH + i]; }
        y[start + i] = v;
    }
}
