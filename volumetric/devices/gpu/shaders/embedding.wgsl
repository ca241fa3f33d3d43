// y[m] = SCALE * W[ids[m]]. A shard writes the rows that it holds.
struct Args { first: u32, units: u32 }  // first row of W in this shard, rows in it

@group(0) @binding(0) var<storage, read> ids: array<u32>;            // (rows)
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;  // (units, PIECES)
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;  // (rows, K4)

const K4: u32 = (K + 3u) / 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let m = group.y;
    let k4 = group.x * WG + lid;
    let row = ids[m];
    if (m >= ctl.rows || k4 >= K4 || row < args.first || row - args.first >= args.units) { return; }
    y[m * K4 + k4] = SCALE * w_load4(row - args.first, k4);
}
