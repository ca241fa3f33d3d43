// One step of an optimiser for several arrays in one launch, in place. `step_at`, a prelude, has the arrays: it moves
// element `i` of array `which`. Each workgroup works on one array. Where the last scalar is 0 nothing changes.
struct Dims { counts: array<vec4<u32>, 2>, ends: array<vec4<u32>, 2> }  // elements of each array; where its groups end

@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    if (is_off()) { return; }
    let id = flat_group(group, groups);
    var which = 0u;
    var begin = 0u;
    //@unroll
    for (var k = 0u; k < ARRAYS; k++) {
        if (id >= dims.ends[k / 4u][k % 4u]) { which = k + 1u; begin = dims.ends[k / 4u][k % 4u]; }
    }
    if (which >= ARRAYS) { return; }
    let count = dims.counts[which / 4u][which % 4u];
    let first = (id - begin) * (WG * EACH) + lid;
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        let i = first + j * WG;
        if (i < count) { step_at(which, i); }
    }
}
