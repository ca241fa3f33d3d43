// y = a formula of element-wise operations over parts of up to five tensors, which are read by strides. The uniform
// lists its steps in order, so that all formulas are one pipeline. Values are numbered, reads first. A prelude
// implements the steps.
struct Dims {
    head: vec4<u32>,  // elements, values that are read, steps
    size: vec4<u32>,  // of up to four axes
    stride: array<vec4<u32>, 8>,   // READS
    begin: array<vec4<u32>, 8>,    // READS; tensor, its first element
    steps: array<vec4<u32>, 16>,   // STEPS; what is done, with which values (left | right << 16); bits of two factors
}

@group(0) @binding(0) var<storage, read> x_0: array<f32>;
@group(0) @binding(1) var<storage, read> x_1: array<f32>;
@group(0) @binding(2) var<storage, read> x_2: array<f32>;
@group(0) @binding(3) var<storage, read> x_3: array<f32>;
@group(0) @binding(4) var<storage, read> x_4: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

fn element(tensor: u32, at: u32) -> f32 {
    switch (tensor) {
        case 0u: { return x_0[at]; }
        case 1u: { return x_1[at]; }
        case 2u: { return x_2[at]; }
        case 3u: { return x_3[at]; }
        default: { return x_4[at]; }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = flat_group(group, groups) * WG;
    let at = first + lid;
    if (is_idle(first, min(first + WG, dims.head.x)) || at >= dims.head.x) { return; }
    var place: vec4<u32>;
    var rest = at;
    //@unroll
    for (var axis = 0u; axis < 4u; axis++) {
        place[3u - axis] = rest % dims.size[3u - axis];
        rest = rest / dims.size[3u - axis];
    }
    var values: array<f32, READS + STEPS>;
    //@rounds READS
    for (var i = 0u; i < dims.head.y; i++) {
        let offset = place * dims.stride[i];
        values[i] = element(dims.begin[i].x, dims.begin[i].y + offset.x + offset.y + offset.z + offset.w);
    }
    //@rounds STEPS
    for (var i = 0u; i < dims.head.z; i++) {
        let step = dims.steps[i];
        let made = stepped(
            step.x, values[step.y & 0xffffu], values[step.y >> 16u], bitcast<f32>(step.z), bitcast<f32>(step.w),
        );
        values[dims.head.y + i] = made;
    }
    y[at] = values[dims.head.y + dims.head.z - 1u];
}
