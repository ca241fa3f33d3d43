// Cross entropy of rows of logits: gradient of each row, and its term and weight. The target of a row is an id or, with SOFT,
// a share for each class; SMOOTH of it is spread over all classes. Rows of weight 0 are 0, whatever they hold.
struct Dims { rows: u32, width: u32, ignored: u32 }

@group(0) @binding(0) var<storage, read> prediction: array<f32>;
@group(0) @binding(1) var<storage, read> wanted: array<u32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> gradient: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(13) var<uniform> dims: Dims;

fn share(row: u32, i: u32) -> f32 {
    var q = 0.0;
    if (SOFT) { q = bitcast<f32>(wanted[row * dims.width + i]); } else { q = select(0.0, 1.0, wanted[row] == i); }
    return q * (1.0 - SMOOTH) + SMOOTH / f32(dims.width);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * (WG / TEAM) + lid / TEAM;
    let row = min(at, dims.rows - 1u);
    let start = row * dims.width;
    let lane = lid % TEAM;
    var weight = 1.0;
    if (WEIGHTS) { weight = weights[row]; }
    if (!SOFT) { weight = select(weight, 0.0, wanted[row] == dims.ignored); }
    var top = LOWEST;
    for (var i = lane; i < dims.width; i += TEAM) { top = max(top, prediction[start + i]); }
    top = team_max(top, lid, TEAM);
    var total = 0.0;
    for (var i = lane; i < dims.width; i += TEAM) { total += exponential(prediction[start + i] - top); }
    let level = top + logarithm(team_sum(total, lid, TEAM));
    var term = 0.0;
    var whole = 0.0;
    for (var i = lane; i < dims.width; i += TEAM) {
        let q = share(row, i);
        whole += q;
        if (q != 0.0) { term -= q * (prediction[start + i] - level); }
    }
    term = team_sum(term, lid, TEAM);
    whole = team_sum(whole, lid, TEAM);
    if (at < dims.rows) {
        if (lane == 0u) { sums[row] = vec2<f32>(select(term * weight, 0.0, weight == 0.0), weight); }
        for (var i = lane; i < dims.width; i += TEAM) {
            let slope = exponential(prediction[start + i] - level) * whole - share(row, i);
            gradient[start + i] = select(slope * weight, 0.0, weight == 0.0);
        }
    }
}
