// Rows of words from one place to another, where rows have another length: between the values of a call, whose rows are whole
// vectors, and the dense tensors of a graph.
struct Dims {
    rows: u32, each: u32, width: u32,  // all; those of a sequence; words of a row
    source: u32, source_stride: u32, source_apart: u32,  // in words: the first row, from row to row, from sequence to sequence
    target_at: u32, target_stride: u32, target_apart: u32,
}

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
    let column = i % dims.width;
    let sequence = i / dims.width / dims.each;
    let row = i / dims.width % dims.each;
    let source = dims.source + sequence * dims.source_apart + row * dims.source_stride;
    y[dims.target_at + sequence * dims.target_apart + row * dims.target_stride + column] = x[source + column];
}
