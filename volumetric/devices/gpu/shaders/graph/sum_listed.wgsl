// Row r of y becomes the sum of the rows of g listed from starts[r] up to starts[r + 1], in the order of the list of
// `listed` numbers.
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
    //@rounds dims.longest
    for (var k = starts[row]; k < end; k++) { sum += g[min(list[k], dims.last) * dims.width + column]; }
    y[at] = sum;
}
