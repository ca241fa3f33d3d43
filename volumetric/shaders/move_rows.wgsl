// Rows of words from one place to another, where rows have another length: between the values of a call, whose rows are whole
// vectors, and the dense tensors of a graph.
struct Dims { rows: u32, width: u32, source: u32, source_stride: u32, target_at: u32, target_stride: u32 }  // in words

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = flat_group(group, groups) * WG + lid;
    if (i >= dims.rows * dims.width) { return; }
    let row = i / dims.width;
    let column = i % dims.width;
    y[dims.target_at + row * dims.target_stride + column] = x[dims.source + row * dims.source_stride + column];
}
