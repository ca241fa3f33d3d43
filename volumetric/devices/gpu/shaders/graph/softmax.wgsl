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
    var top = LOWEST;
    var odd = 0.0;
    for (var i = lane; i < dims.width; i += TEAM) {
        let v = x[start + i];
        if (is_odd(v)) { odd = 1.0; } else { top = max(top, v); }
    }
    top = team_max(top, lid, TEAM);
    odd = team_max(odd, lid, TEAM);
    var total = 0.0;
    for (var i = lane; i < dims.width; i += TEAM) { total += exponential(x[start + i] - top); }
    total = team_sum(total, lid, TEAM);
    let scale = 1.0 / select(total, 1.0, total == 0.0);
    if (row < dims.rows) {
        for (var i = lane; i < dims.width; i += TEAM) {
            y[start + i] = select(exponential(x[start + i] - top) * scale, nan(), odd > 0.0);
        }
    }
}
