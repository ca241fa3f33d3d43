// Row r of y becomes the sum of the rows of g listed from starts[r] up to starts[r + 1], in the order of the list of
// `listed` numbers. Four are read at once; what lies beyond the end is the last one again, and counts as 0.
struct Dims { count: u32, width: u32, longest: u32, listed: u32, last: u32 }

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> list: array<u32>;
@group(0) @binding(2) var<storage, read> starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let row = at / dims.width;
    let column = at % dims.width;
    let end = min(starts[row + 1u], dims.listed);
    var sum = 0.0;
    //@rounds dims.longest / 4 + 1
    for (var k = starts[row]; k < end; k += 4u) {
        var value: array<f32, 4>;
        //@unroll
        for (var i = 0u; i < 4u; i++) { value[i] = g[min(list[min(k + i, end - 1u)], dims.last) * dims.width + column]; }
        //@unroll
        for (var i = 0u; i < 4u; i++) { sum += select(0.0, value[i], k + i < end); }
    }
    y[at] = sum;
}
