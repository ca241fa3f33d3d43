// y = a formula of element-wise operations over parts of up to five tensors, which are read by strides. A prelude has its
// steps as code, so each sequence of steps is a pipeline of its own: for tensors so large that `formula`, which looks its
// steps up, would be slower.
struct Dims {
    head: vec4<u32>,  // elements
    size: vec4<u32>,  // of up to four axes
    stride: array<vec4<u32>, 8>,   // READS
    begin: array<vec4<u32>, 8>,    // READS; tensor, its first element
    steps: array<vec4<u32>, 16>,   // STEPS; the last two are the bits of two factors
}

@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let begin = flat_group(group, groups) * (WG * EACH);
    if (is_idle(begin, min(begin + WG * EACH, dims.head.x))) { return; }
    let first = begin + lid;
    var value: array<f32, EACH>;
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        var place: vec4<u32>;
        var rest = min(first + j * WG, dims.head.x - 1u);
        //@unroll
        for (var axis = 1u; axis < RANK; axis++) {
            let above = rest / dims.size[4u - axis];
            place[4u - axis] = rest - above * dims.size[4u - axis];
            rest = above;
        }
        place[4u - RANK] = rest;
        value[j] = computed(place);
    }
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        if (first + j * WG < dims.head.x) { y[first + j * WG] = value[j]; }
    }
}
