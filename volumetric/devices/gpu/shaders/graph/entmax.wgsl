// y = max(z - t, 0)^POWER for each row, with z = (ALPHA - 1) (x - max x), POWER = 1 / (ALPHA - 1) and the t that makes the
// row sum to 1. t lies in -1 ... 0 and is found by bisection; what float32 leaves is corrected on the elements above t: for
// sparsemax (ALPHA = 2) by the exact threshold of this support, otherwise by dividing by the sum.
struct Dims { rows: u32, width: u32, highest: f32 }  // -width^(1 - ALPHA), where no row sums to more than 1

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

const HALVINGS: u32 = 28u;
const CORRECTIONS: u32 = 3u;

fn share(above: f32) -> f32 {
    if (above <= 0.0) { return 0.0; }
    return power(above, POWER);
}

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
    var low = -1.0;
    var high = dims.highest;
    for (var round = 0u; round < HALVINGS; round++) {
        let middle = 0.5 * (low + high);
        var sum = 0.0;
        for (var i = lane; i < dims.width; i += TEAM) { sum += share((ALPHA - 1.0) * (x[start + i] - top) - middle); }
        sum = team_sum(sum, lid, TEAM);
        if (sum >= 1.0) { low = middle; } else { high = middle; }
    }
    var scale = 1.0;
    if (POWER == 1.0) {
        for (var round = 0u; round < CORRECTIONS; round++) {
            var excess = 0.0;
            var size = 0.0;
            for (var i = lane; i < dims.width; i += TEAM) {
                let above = (x[start + i] - top) - low;
                if (above > 0.0) { excess += above; size += 1.0; }
            }
            excess = team_sum(excess, lid, TEAM) - 1.0;
            low += excess / max(team_sum(size, lid, TEAM), 1.0);
        }
    } else {
        var total = 0.0;
        for (var i = lane; i < dims.width; i += TEAM) { total += share((ALPHA - 1.0) * (x[start + i] - top) - low); }
        total = team_sum(total, lid, TEAM);
        scale = 1.0 / select(total, 1.0, total == 0.0);
    }
    if (row < dims.rows) {
        for (var i = lane; i < dims.width; i += TEAM) {
            let v = share((ALPHA - 1.0) * (x[start + i] - top) - low) * scale;
            y[start + i] = select(v, nan(), odd > 0.0);
        }
    }
}
