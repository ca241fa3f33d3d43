// Row ids[i] of y becomes the sum of all g rows with this id, in their order; y is zero elsewhere before. A workgroup an id
// and BLOCK columns: it leaves unless its id is the first of its kind, so each row is written once and without atomics.
struct Dims { count: u32, width: u32, blocks: u32, total: u32 }

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

var<workgroup> near: array<u32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = min(flat_group(group, groups), dims.total - 1u);
    let mine = id / dims.blocks;
    let column = id % dims.blocks * WG + lid;
    let row = ids[mine];
    var earlier = 0.0;
    for (var j = lid; j < mine; j += WG) {
        if (ids[j] == row) { earlier = 1.0; }
    }
    earlier = team_max(earlier, lid, WG);
    var sum = 0.0;
    for (var from_id = mine; from_id < dims.count; from_id += WG) {
        near[lid] = select(0xffffffffu, ids[min(from_id + lid, dims.count - 1u)], from_id + lid < dims.count);
        workgroupBarrier();
        if (earlier == 0.0 && column < dims.width) {
            for (var j = 0u; j < min(WG, dims.count - from_id); j++) {
                if (near[j] == row) { sum += g[(from_id + j) * dims.width + column]; }
            }
        }
        workgroupBarrier();
    }
    if (earlier == 0.0 && column < dims.width) { y[row * dims.width + column] = sum; }
}
