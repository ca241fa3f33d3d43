// Rows of a table by their numbers, for several runs of a graph at once. Rows are words of any type; the rows of each
// run begin at a multiple of the GPU's alignment, so that a dispatch of the run can bind them.
struct Dims {
    runs: u32, rows: u32, width: u32,  // rows of a run, words of a row
    stride: u32,                       // words from run to run
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;  // (runs, rows)
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = flat_group(group, groups) * WG + lid;
    let each = dims.rows * dims.width;
    if (i >= dims.runs * each) { return; }
    let run = i / each;
    let word = i % each;
    let id = ids[run * dims.rows + word / dims.width];
    y[run * dims.stride + word] = x[id * dims.width + word % dims.width];
}
