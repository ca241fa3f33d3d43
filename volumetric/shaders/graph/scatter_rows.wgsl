// Row ids[i] of y becomes the sum of all g rows with this id, in their order; y is zero elsewhere before. A workgroup an id
// and BLOCK columns: it leaves unless its id is the first of its kind, so each row is written once and without atomics.
// A launch takes the ids from `first` to `count`, and adds to what earlier ones summed.
struct Dims { count: u32, width: u32, blocks: u32, total: u32, first: u32 }

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

const EACH: u32 = 8u;  // ids of a tile that each invocation compares: most tiles have none of this kind and cost no more

var<workgroup> near: array<u32, WG * EACH>;
var<workgroup> tiles_with: atomic<u32>;  // 1 + the number of the last tile that has this id

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = min(flat_group(group, groups), dims.total - 1u);
    let mine = dims.first + id / dims.blocks;
    let column = id % dims.blocks * WG + lid;
    let row = ids[mine];
    var earlier = 0.0;
    //@rounds (dims.count - dims.first) / WG + 1
    for (var j = dims.first + lid; j < mine; j += WG) {
        if (ids[j] == row) { earlier = 1.0; }
    }
    earlier = team_max(earlier, lid, WG);
    var sum = 0.0;
    var tile = 0u;
    //@rounds (dims.count - dims.first) / (WG * EACH) + 1
    for (var from_id = mine; from_id < dims.count; from_id += WG * EACH) {
        tile++;
        for (var e = 0u; e < EACH; e++) {
            let at = from_id + e * WG + lid;
            let other = select(0xffffffffu, ids[min(at, dims.count - 1u)], at < dims.count);
            near[e * WG + lid] = other;
            if (other == row) { atomicStore(&tiles_with, tile); }
        }
        workgroupBarrier();
        if (earlier == 0.0 && column < dims.width && atomicLoad(&tiles_with) == tile) {
            //@rounds min(WG * EACH, dims.count - dims.first)
            for (var j = 0u; j < min(WG * EACH, dims.count - from_id); j++) {
                if (near[j] == row) { sum += g[(from_id + j) * dims.width + column]; }
            }
        }
        workgroupBarrier();
    }
    if (earlier == 0.0 && column < dims.width) {
        if (dims.first > 0u) { sum += y[row * dims.width + column]; }
        y[row * dims.width + column] = sum;
    }
}
