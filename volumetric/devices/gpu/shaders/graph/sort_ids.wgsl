// Runs of WG ids in rising order, each with the number of the row that had it; equal ids stay in their order. An invocation
// counts the ids of its run that come before its own, eight at a time, whose reads do not wait for each other.
struct Dims { count: u32 }

@group(0) @binding(0) var<storage, read> ids: array<u32>;
@group(0) @binding(1) var<storage, read_write> sorted: array<vec2<u32>>;
@group(0) @binding(13) var<uniform> dims: Dims;

var<workgroup> near: array<u32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = flat_group(group, groups) * WG;
    let row = first + lid;
    let own = select(0xffffffffu, ids[min(row, dims.count - 1u)], row < dims.count);
    near[lid] = own;
    workgroupBarrier();
    var before = 0u;
    for (var j = 0u; j < WG; j += 8u) {
        //@unroll
        for (var i = 0u; i < 8u; i++) {
            let other = near[j + i];
            before += select(0u, 1u, other < own || (other == own && j + i < lid));
        }
    }
    if (row < dims.count) { sorted[first + before] = vec2<u32>(own, row); }
}
