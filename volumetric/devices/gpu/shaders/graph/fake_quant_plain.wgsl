// y = held(x), element by element: schemes without scales.
struct Dims { count: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

fn unknown_zero() -> u32 { return dims.count >> 31u; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = flat_group(group, groups) * WG + lid;
    if (i < dims.count) { y[i] = held(x[i]); }
}
