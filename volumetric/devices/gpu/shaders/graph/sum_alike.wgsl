// Rows of g that have the same id, by sorted ids with the number of each row: y at the id becomes their sum, in their
// order. A workgroup takes a place of the sorted order and WG * EACH columns, and ends unless rows of another id, or another
// block of `length` places, precede it. So no sum is long: if the rows of an id are in several blocks, `parts` gets two
// sums for each block, the first for an id that began before it and the second for one that continues after it. Four rows
// are read at once, and added in their order: those beyond the id's last are the first row again, which counts as 0. Ids
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
    let column = item % dims.columns * (WG * EACH) + lid;
    if (first >= dims.count || column >= dims.width) { return; }
    let own = sorted[first];
    let id = own.x;
    let begun = first > 0u && sorted[max(first, 1u) - 1u].x == id;
    let block = first / dims.length;
    if (begun && first % dims.length > 0u) { return; }
    let end = min((block + 1u) * dims.length, dims.count);
    var sum: array<f32, EACH>;
    var at = first;
    //@rounds dims.length / 4 + 1
    for (; at < end; at += 4u) {
        var row: array<u32, 4>;
        var alike: array<bool, 4>;
        var value: array<f32, 4u * EACH>;
        //@unroll
        for (var i = 0u; i < 4u; i++) {
            let next = sorted[min(at + i, end - 1u)];
            alike[i] = at + i < end && next.x == id;
            row[i] = select(own.y, next.y, alike[i]) * dims.width;
        }
        //@unroll
        for (var i = 0u; i < 4u; i++) {
            //@unroll
            for (var e = 0u; e < EACH; e++) { value[i * EACH + e] = g[row[i] + min(column + e * WG, dims.width - 1u)]; }
        }
        //@unroll
        for (var i = 0u; i < 4u; i++) {
            //@unroll
            for (var e = 0u; e < EACH; e++) { sum[e] += select(0.0, value[i * EACH + e], alike[i]); }
        }
        if (!alike[3]) {
            at += select(0u, 1u, alike[0]) + select(0u, 1u, alike[1]) + select(0u, 1u, alike[2]);
            break;
        }
    }
    let on = at >= end && end < dims.count && sorted[min(end, dims.count - 1u)].x == id;
    //@unroll
    for (var e = 0u; e < EACH; e++) {
        let c = column + e * WG;
        if (c < dims.width) {
            if (begun) { parts[2u * block * dims.width + c] = sum[e]; }
            else if (on) { parts[(2u * block + 1u) * dims.width + c] = sum[e]; }
            else if (id < dims.rows) { y[id * dims.width + c] = sum[e]; }
        }
    }
}
