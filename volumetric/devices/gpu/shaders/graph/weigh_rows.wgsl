// y[i] = sum over k of weights[i, k] * row[ids[i, k]] of two tables, the rows of the second behind those of the first. A row
// of weight 0 is not read, so that not even NaN comes of it. Ids are at most the last row.
struct Dims { count: u32, width: u32, terms: u32, split: u32, last: u32 }

@group(0) @binding(0) var<storage, read> near: array<f32>;
@group(0) @binding(1) var<storage, read> far: array<f32>;
@group(0) @binding(2) var<storage, read> ids: array<u32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

fn taken(row: u32, column: u32) -> f32 {
    if (row < dims.split) { return near[row * dims.width + column]; }
    return far[(row - dims.split) * dims.width + column];
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let begin = flat_group(group, groups) * WG;
    let at = begin + lid;
    if (is_idle(begin, min(begin + WG, dims.count)) || at >= dims.count) { return; }
    let first = at / dims.width * dims.terms;
    var sum = 0.0;
    for (var k = 0u; k < dims.terms; k++) {
        let by = weights[first + k];
        if ((bitcast<u32>(by) & 0x7fffffffu) != 0u) { sum += by * taken(min(ids[first + k], dims.last), at % dims.width); }
    }
    y[at] = sum;
}
