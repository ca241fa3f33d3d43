// y[i] = table[ids[i]], row by row. Ids that nothing could check before the run are at most the last row.
struct Dims { count: u32, width: u32, last: u32 }

@group(0) @binding(0) var<storage, read> rows: array<f32>;
@group(0) @binding(1) var<storage, read> ids: array<u32>;
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
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        let at = first + j * WG;
        if (at < dims.count) { y[at] = rows[min(ids[at / dims.width], dims.last) * dims.width + at % dims.width]; }
    }
}
