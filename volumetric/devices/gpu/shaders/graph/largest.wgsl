// Exponent of the largest magnitude of each part of a tensor, as its bits: 255 if a number is infinite or NaN.
struct Dims {
    count: u32,
    chunk: u32,    // elements of a part
    first: u32,    // where the first part's result goes
    results: u32,  // elements of the result of the operation
}

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> tops: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    if (is_idle(0u, dims.results)) { return; }
    let stop = min(dims.count, (id + 1u) * dims.chunk);
    var top = 0u;
    //@rounds dims.chunk / WG + 1
    for (var i = id * dims.chunk + lid; i < stop; i += WG) { top = max(top, x[i] & 0x7fffffffu); }
    let exponent = team_max(f32(top >> 23u), lid, WG);
    if (lid == 0u) { tops[dims.first + id] = u32(exponent); }
}
