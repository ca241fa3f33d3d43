// Copy elements by strides: slices, permutations, repetitions, paddings and parts of joined tensors. Element (i0, i1, ...)
// of a box of `size` comes from x at the sum of i * x_stride, and goes to y at the sum of i * y_stride. With BOUNDS, it is
// 0 where an index lies outside of low <= i < high. Elements are moved as bits, whatever their type.
struct Dims {
    at: vec4<u32>,  // elements of the box; start in x, which may wrap below 0; start in y
    size: array<vec4<u32>, 2>,
    x_stride: array<vec4<u32>, 2>,
    y_stride: array<vec4<u32>, 2>,
    low: array<vec4<u32>, 2>,
    high: array<vec4<u32>, 2>,
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<storage, read> apply: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    if (CONDITIONAL) {
        if (apply[0] == 0.0) { return; }
    }
    let begin = flat_group(group, groups) * (WG * EACH);
    if (is_idle(begin, min(begin + WG * EACH, dims.at.x))) { return; }
    let first = begin + lid;
    var moved: array<u32, EACH>;
    var target_at: array<u32, EACH>;
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        var rest = min(first + j * WG, dims.at.x - 1u);
        var from_at = dims.at.y;
        var to_at = dims.at.z;
        var inside = true;
        //@unroll
        for (var axis = 1u; axis < RANK + 1u; axis++) {
            let size = dims.size[(RANK - axis) / 4u][(RANK - axis) % 4u];
            let i = rest % size;
            rest = rest / size;
            from_at += i * dims.x_stride[(RANK - axis) / 4u][(RANK - axis) % 4u];
            to_at += i * dims.y_stride[(RANK - axis) / 4u][(RANK - axis) % 4u];
            if (BOUNDS) {
                let low = dims.low[(RANK - axis) / 4u][(RANK - axis) % 4u];
                inside = inside && i >= low && i < dims.high[(RANK - axis) / 4u][(RANK - axis) % 4u];
            }
        }
        target_at[j] = to_at;
        moved[j] = select(0u, x[select(0u, from_at, inside)], inside);
    }
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        if (first + j * WG < dims.at.x) { y[target_at[j]] = moved[j]; }
    }
}
