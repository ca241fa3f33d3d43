// y = combine(a, b) with broadcasting: up to 4 axes, a stride of 0 where an operand repeats.
struct Dims { count: vec4<u32>, size: vec4<u32>, a_stride: vec4<u32>, b_stride: vec4<u32> }

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let begin = flat_group(group, groups) * (WG * EACH);
    if (is_idle(begin, min(begin + WG * EACH, dims.count.x))) { return; }
    let first = begin + lid;
    var left: array<f32, EACH>;
    var right: array<f32, EACH>;
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        var rest = min(first + j * WG, dims.count.x - 1u);
        var at_a = 0u;
        var at_b = 0u;
        //@unroll
        for (var axis = 1u; axis < RANK; axis++) {
            let i = rest % dims.size[RANK - axis];
            rest = rest / dims.size[RANK - axis];
            at_a += i * dims.a_stride[RANK - axis];
            at_b += i * dims.b_stride[RANK - axis];
        }
        left[j] = a[at_a + rest * dims.a_stride[0]];
        right[j] = b[at_b + rest * dims.b_stride[0]];
    }
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        let i = first + j * WG;
        if (i < dims.count.x) { y[i] = combine(left[j], right[j]); }
    }
}
