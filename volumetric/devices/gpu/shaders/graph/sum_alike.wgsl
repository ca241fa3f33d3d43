// Rows of g that have the same id, by sorted ids with the number of each row: y at the id becomes their sum, in their
// order. A workgroup takes a place of the sorted order and WG columns, and ends unless rows of another id, or another
// block of `length` places, precede it. So no sum is long: if the rows of an id are in several blocks, `parts` gets two
// sums for each block, the first for an id that began before it and the second for one that continues after it. Ids
// beyond the `rows` of y are left out.
struct Dims { count: u32, width: u32, columns: u32, length: u32, rows: u32 }

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> sorted: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> parts: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let item = flat_group(group, groups);
    let first = item / dims.columns;
    let column = item % dims.columns * WG + lid;
    if (first >= dims.count || column >= dims.width) { return; }
    let id = sorted[first].x;
    let begun = first > 0u && sorted[max(first, 1u) - 1u].x == id;
    let block = first / dims.length;
    if (begun && first % dims.length > 0u) { return; }
    let end = min((block + 1u) * dims.length, dims.count);
    var sum = 0.0;
    var at = first;
    //@rounds dims.length
    for (; at < end; at++) {
        let next = sorted[at];
        if (next.x != id) { break; }
        sum += g[next.y * dims.width + column];
    }
    if (begun) {
        parts[2u * block * dims.width + column] = sum;
    } else if (at == end && end < dims.count && sorted[min(end, dims.count - 1u)].x == id) {
        parts[(2u * block + 1u) * dims.width + column] = sum;
    } else if (id < dims.rows) {
        y[id * dims.width + column] = sum;
    }
}
