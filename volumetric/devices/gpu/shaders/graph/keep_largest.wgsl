// y = x where it is among the K largest of its row, else -inf. Floats are compared as integers of the same order, so that
// the K-th largest is found bit by bit, exactly and without sorting; of its equals those with the lowest indices stay, whose
// bound is found the same way. NaN has the lowest place and stays.
struct Dims { rows: u32, width: u32, keep: u32 }

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
    let keep = f32(dims.keep);
    var least = 0u;  // the K-th largest place
    for (var bit = 0u; bit < 32u; bit++) {
        let candidate = least | (0x80000000u >> bit);
        var count = 0.0;
        for (var i = lane; i < dims.width; i += TEAM) { count += select(0.0, 1.0, place_of(x[start + i]) >= candidate); }
        if (team_sum(count, lid, TEAM) >= keep) { least = candidate; }
    }
    var larger = 0.0;
    for (var i = lane; i < dims.width; i += TEAM) { larger += select(0.0, 1.0, place_of(x[start + i]) > least); }
    let wanted = keep - team_sum(larger, lid, TEAM);
    var last = 0u;  // index of the last equal that stays: the most that has fewer than `wanted` equals before it
    for (var bit = INDEX_BITS; bit > 0u; bit--) {
        let candidate = last | (1u << (bit - 1u));
        var count = 0.0;
        for (var i = lane; i < min(candidate, dims.width); i += TEAM) {
            count += select(0.0, 1.0, place_of(x[start + i]) == least);
        }
        if (team_sum(count, lid, TEAM) < wanted) { last = candidate; }
    }
    if (row < dims.rows) {
        for (var i = lane; i < dims.width; i += TEAM) {
            let v = x[start + i];
            let at = place_of(v);
            let stays = at > least || at == 0u || (at == least && i <= last);
            y[start + i] = select(-infinity(), v, stays);
        }
    }
}
