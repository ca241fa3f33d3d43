// gx = s (g - sum(s g) / sum(s)) for each row, the gradient of softmax and its relatives from their output y, with
// s = y for softmax, where sum(s) is left out, and s = y^EXPONENT where y is above 0 for entmax.
struct Dims { rows: u32, width: u32 }

@group(0) @binding(0) var<storage, read> y: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> gx: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

fn weight(y: f32) -> f32 {
    if (is_nan(y)) { return y; }
    if (EXPONENT == 1.0) { return y; }
    if (EXPONENT == 0.0) { return select(0.0, 1.0, y > 0.0); }
    if (EXPONENT == 0.5) { return sqrt(y); }
    return select(0.0, power(y, EXPONENT), y > 0.0);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups) * (WG / TEAM) + lid / TEAM;
    let start = min(row, dims.rows - 1u) * dims.width;
    let lane = lid % TEAM;
    var s: array<f32, HELD>;
    var v: array<f32, HELD>;
    var product = 0.0;
    var total = 0.0;
    for (var at = lane; at < dims.width; at += ROUND) {
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            s[e] = y[start + held_at(at, e)];
            v[e] = g[start + held_at(at, e)];
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            s[e] = weight(s[e]);
            product += select(0.0, s[e] * v[e], is_held(at, e));
            total += select(0.0, s[e], is_held(at, e));
        }
    }
    var mean = team_sum(product, lid, TEAM);
    if (NORMALISED) {
        total = team_sum(total, lid, TEAM);
        mean = mean / select(total, 1.0, total == 0.0);
    }
    if (row >= dims.rows) { return; }
    for (var at = lane; at < dims.width; at += ROUND) {
        if (!WHOLE) {
            //@unroll
            for (var e = 0u; e < HELD; e++) {
                s[e] = weight(y[start + held_at(at, e)]);
                v[e] = g[start + held_at(at, e)];
            }
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            if (is_held(at, e)) { gx[start + held_at(at, e)] = s[e] * (v[e] - mean); }
        }
    }
}
