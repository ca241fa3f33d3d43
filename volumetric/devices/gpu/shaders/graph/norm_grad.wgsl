// gx = rstd (i - n mean(i n)) for each row, for a layer norm also minus rstd mean(i), with
// n = (x - mean - shift) rstd and i = g gain.
struct Dims { rows: u32, width: u32 }

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> stats: array<f32>;     // (mean, rstd, shift) of each row
@group(0) @binding(3) var<storage, read> gain: array<f32>;
@group(0) @binding(4) var<storage, read_write> gx: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

fn incoming(at: u32, i: u32) -> f32 {
    if (GAIN) { return g[at] * (gain[i] + UNIT); }
    return g[at];
}

fn normal(x: f32, found: vec3<f32>) -> f32 { return ((x - found.x) - found.z) * found.y; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups) * (WG / TEAM) + lid / TEAM;
    let start = min(row, dims.rows - 1u) * dims.width;
    let lane = lid % TEAM;
    let own = 3u * min(row, dims.rows - 1u);
    let found = vec3<f32>(stats[own], stats[own + 1u], stats[own + 2u]);
    var v: array<f32, HELD>;
    var n: array<f32, HELD>;
    var along = 0.0;
    var total = 0.0;
    for (var at = lane; at < dims.width; at += ROUND) {
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            v[e] = incoming(start + held_at(at, e), held_at(at, e));
            n[e] = x[start + held_at(at, e)];
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            n[e] = normal(n[e], found);
            along += select(0.0, v[e] * n[e], is_held(at, e));
            total += select(0.0, v[e], is_held(at, e));
        }
    }
    along = team_sum(along, lid, TEAM) / f32(dims.width);
    if (LAYER) { total = team_sum(total, lid, TEAM) / f32(dims.width); } else { total = 0.0; }
    if (row >= dims.rows) { return; }
    for (var at = lane; at < dims.width; at += ROUND) {
        if (!WHOLE) {
            //@unroll
            for (var e = 0u; e < HELD; e++) {
                v[e] = incoming(start + held_at(at, e), held_at(at, e));
                n[e] = normal(x[start + held_at(at, e)], found);
            }
        }
        //@unroll
        for (var e = 0u; e < HELD; e++) {
            if (is_held(at, e)) { gx[start + held_at(at, e)] = found.y * (v[e] - n[e] * along - total); }
        }
    }
}
