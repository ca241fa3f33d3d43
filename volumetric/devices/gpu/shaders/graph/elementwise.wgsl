// y = apply(x), or g * slope(x), element by element; the function is a prelude.
struct Dims { count: u32, alpha: f32, beta: f32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> g: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let begin = flat_group(group, groups) * (WG * EACH);
    if (is_idle(begin, min(begin + WG * EACH, dims.count))) { return; }
    let first = begin + lid;
    var read: array<f32, EACH>;
    //@unroll
    for (var j = 0u; j < EACH; j++) { read[j] = x[min(first + j * WG, dims.count - 1u)]; }
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        let i = first + j * WG;
        if (i < dims.count) { y[i] = result(read[j], i); }
    }
}
