// Sums of the ids whose rows are in several blocks of `sum_alike`. A workgroup takes the id that begins in a block and goes
// on in the next, and WG columns. Four blocks are read at once, and added in their order.
struct Dims { blocks: u32, width: u32, columns: u32, length: u32, rows: u32 }

@group(0) @binding(0) var<storage, read> sorted: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read> parts: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let item = flat_group(group, groups);
    let block = item / dims.columns;
    let column = item % dims.columns * WG + lid;
    if (block + 1u >= dims.blocks || column >= dims.width) { return; }
    let first = block * dims.length;
    let end = first + dims.length;
    let id = sorted[end].x;
    if (sorted[end - 1u].x != id) { return; }
    if (first > 0u && sorted[max(first, 1u) - 1u].x == id) { return; }
    var sum = parts[(2u * block + 1u) * dims.width + column];
    //@rounds dims.blocks / 4 + 1
    for (var next = block + 1u; next < dims.blocks; next += 4u) {
        var alike: array<bool, 4>;
        var value: array<f32, 4>;
        //@unroll
        for (var i = 0u; i < 4u; i++) {
            let there = min(next + i, dims.blocks - 1u);
            alike[i] = next + i < dims.blocks && sorted[there * dims.length].x == id;
            value[i] = parts[2u * there * dims.width + column];
        }
        //@unroll
        for (var i = 0u; i < 4u; i++) { sum += select(0.0, value[i], alike[i]); }
        if (!alike[3]) { break; }
    }
    if (id < dims.rows) { y[id * dims.width + column] = sum; }
}
