// y = (x - mean - shift) rstd gain + bias for each row, and stats = (mean, rstd, shift): the shift is what rounding took from
// the mean. For an rms norm both are 0.
struct Dims { rows: u32, width: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> gain: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(4) var<storage, read_write> stats: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let begin = flat_group(group, groups) * (WG / TEAM);
    if (is_idle(begin * dims.width, min(begin + WG / TEAM, dims.rows) * dims.width)) { return; }
    let row = begin + lid / TEAM;
    let start = min(row, dims.rows - 1u) * dims.width;
    let lane = lid % TEAM;
    var v: array<f32, HELD>;
    var mean = 0.0;
    if (LAYER || WHOLE) {
        var sum = 0.0;
        for (var at = lane; at < dims.width; at += ROUND) {
            //@unroll
            for (var e = 0u; e < HELD; e++) { v[e] = x[start + held_at(at, e)]; }
            //@unroll
            for (var e = 0u; e < HELD; e++) { sum += select(0.0, v[e], is_held(at, e)); }
        }
        if (LAYER) { mean = team_sum(sum, lid, TEAM) / f32(dims.width); }
    }
    var rest = 0.0;
    var squares = 0.0;
    for (var at = lane; at < dims.width; at += ROUND) {
        if (!WHOLE) {
            //@unroll
            for (var e = 0u; e < HELD; e++) { v[e] = x[start + held_at(at, e)]; }
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            v[e] -= mean;
            rest += select(0.0, v[e], is_held(at, e));
            squares += select(0.0, v[e] * v[e], is_held(at, e));
        }
    }
    var shift = 0.0;
    if (LAYER) { shift = team_sum(rest, lid, TEAM) / f32(dims.width); }
    let rstd = 1.0 / sqrt(variance_about(team_sum(squares, lid, TEAM) / f32(dims.width), shift) + EPS);
    if (row >= dims.rows) { return; }
    if (lane == 0u) {
        stats[3u * row] = mean;
        stats[3u * row + 1u] = rstd;
        stats[3u * row + 2u] = shift;
    }
    for (var at = lane; at < dims.width; at += ROUND) {
        if (!WHOLE) {
            //@unroll
            for (var e = 0u; e < HELD; e++) { v[e] = x[start + held_at(at, e)] - mean; }
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            v[e] = (v[e] - shift) * rstd;
            if (GAIN) { v[e] *= gain[held_at(at, e)] + UNIT; }
            if (BIAS) { v[e] += bias[held_at(at, e)]; }
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            if (is_held(at, e)) { y[start + held_at(at, e)] = v[e]; }
        }
    }
}
