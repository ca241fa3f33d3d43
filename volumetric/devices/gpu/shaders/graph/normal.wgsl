// y = x + sqrt(-2 log u) cos(2 pi v): u and v are two words of a hash of the element's number, the layer's stream and the two
// words of the key.
struct Dims { count: u32, stream: u32, first: u32 }

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> key: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let words = all_hashed(vec4<u32>(at + dims.first, dims.stream, key[0], key[1]));
    y[at] = x[at] + sqrt(-2.0 * logarithm(chance_of(words.x))) * turned(chance_of(words.y) * 6.2831855, 1);
}
