// Sum of the squares of the parameter after one optimiser step, without writing the parameter: shows whether the step
// is finite before it is taken. Each workgroup sums a chunk. `moved` is a prelude, with the slots.
struct Dims { count: u32, chunk: u32 }

@group(0) @binding(0) var<storage, read> param: array<f32>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(5) var<storage, read> scalars: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    let off = scalars[4] == 0.0;
    var sum = 0.0;
    //@rounds dims.chunk / WG + 1
    for (var i = id * dims.chunk + lid; i < min(dims.count, (id + 1u) * dims.chunk); i += WG) {
        let before = param[i];
        let after = select(moved(before, grad[i] * scalars[1], i), before, off);
        sum += after * after;
    }
    sum = team_sum(sum, lid, WG);
    if (lid == 0u && id * dims.chunk < dims.count) { y[id] = sum; }
}
