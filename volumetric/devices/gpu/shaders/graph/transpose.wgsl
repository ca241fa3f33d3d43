// y[b, n, m] = x[b, m, n] by tiles of 32 x 32 through workgroup memory, so that both sides move whole cache lines.
struct Dims { m: u32, n: u32, across: u32, down: u32, total: u32 }  // tiles along n, along m, in all

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

const SIDE: u32 = 32u;
const ROUNDS: u32 = 1024u / WG;
var<workgroup> tile: array<u32, 1056>;  // rows of 33: columns then lie in different banks

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    if (id >= dims.total) { return; }
    let n0 = id % dims.across * SIDE;
    let m0 = id / dims.across % dims.down * SIDE;
    let start = id / (dims.across * dims.down) * dims.m * dims.n;
    if (is_idle(start, start + dims.m * dims.n)) { return; }
    let column = lid % SIDE;
    for (var j = 0u; j < ROUNDS; j++) {
        let row = j * (WG / SIDE) + lid / SIDE;
        tile[row * 33u + column] = x[start + min(m0 + row, dims.m - 1u) * dims.n + min(n0 + column, dims.n - 1u)];
    }
    workgroupBarrier();
    for (var j = 0u; j < ROUNDS; j++) {
        let row = j * (WG / SIDE) + lid / SIDE;
        if (n0 + row < dims.n && m0 + column < dims.m) {
            y[start + (n0 + row) * dims.m + m0 + column] = tile[column * 33u + row];
        }
    }
}
