// y = softmax of each row of x; TEAM neighbouring invocations a row. A row of -inf throughout gives zeros, one with NaN or
// +inf gives NaN.
struct Dims { rows: u32, width: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
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
    var top = LOWEST;
    var odd = 0.0;
    for (var at = lane; at < dims.width; at += ROUND) {
        //@unroll
        for (var e = 0u; e < HELD; e++) { v[e] = x[start + held_at(at, e)]; }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            if (is_odd(v[e])) { odd = 1.0; } else { top = max(top, v[e]); }
        }
    }
    top = team_max(top, lid, TEAM);
    odd = team_max(odd, lid, TEAM);
    var total = 0.0;
    for (var at = lane; at < dims.width; at += ROUND) {
        if (!WHOLE) {
            //@unroll
            for (var e = 0u; e < HELD; e++) { v[e] = x[start + held_at(at, e)]; }
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            v[e] = exponential(v[e] - top);
            total += select(0.0, v[e], is_held(at, e));
        }
    }
    total = team_sum(total, lid, TEAM);
    let scale = 1.0 / select(total, 1.0, total == 0.0);
    if (row >= dims.rows) { return; }
    for (var at = lane; at < dims.width; at += ROUND) {
        if (!WHOLE) {
            //@unroll
            for (var e = 0u; e < HELD; e++) { v[e] = exponential(x[start + held_at(at, e)] - top); }
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            if (is_held(at, e)) { y[start + held_at(at, e)] = select(v[e] * scale, nan(), odd > 0.0); }
        }
    }
}
