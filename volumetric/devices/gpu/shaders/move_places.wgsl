// Positions of rows in their sequences, for the tensors of a graph: those of so many rows of one or several sequences.
struct Dims { rows: u32, each: u32, row: u32, apart: u32 }  // all; of a sequence; the first one's number, and to the next sequence

@group(0) @binding(0) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = flat_group(group, groups) * WG + lid;
    if (i >= dims.rows) { return; }
    y[i] = row_place(dims.row + i / dims.each * dims.apart + i % dims.each).x;
}
