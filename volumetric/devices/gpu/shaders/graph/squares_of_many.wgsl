// Sums of squares of chunks of several arrays, in one launch; the sums of all chunks are then summed. `value_at`, a
// prelude, is element `i` of array `which`. Each workgroup sums a chunk of one array or, if ALONE, everything.
struct Dims { counts: array<vec4<u32>, 2>, ends: array<vec4<u32>, 2>, chunk: u32, first: u32 }

@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // from `first` on
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    var which = 0u;
    var begin = 0u;
    //@unroll
    for (var k = 0u; k < ARRAYS; k++) {
        if (id >= dims.ends[k / 4u][k % 4u]) { which = k + 1u; begin = dims.ends[k / 4u][k % 4u]; }
    }
    let last = min(which, ARRAYS - 1u);
    let count = select(0u, dims.counts[last / 4u][last % 4u], which < ARRAYS);
    let start = (id - begin) * dims.chunk;
    var sum = 0.0;
    if (ALONE) {
        //@unroll
        for (var k = 0u; k < ARRAYS; k++) {
            //@rounds dims.chunk / WG + 1
            for (var i = lid; i < dims.counts[k / 4u][k % 4u]; i += WG) {
                let value = value_at(k, i);
                sum += value * value;
            }
        }
        sum = team_sum(sum, lid, WG);
        if (lid == 0u) { y[0] = sum; }
        return;
    }
    //@rounds dims.chunk / WG + 1
    for (var i = start + lid; i < min(count, start + dims.chunk); i += WG) {
        let value = value_at(last, i);
        sum += value * value;
    }
    sum = team_sum(sum, lid, WG);
    if (lid == 0u && which < ARRAYS) { y[dims.first + id] = sum; }
}
