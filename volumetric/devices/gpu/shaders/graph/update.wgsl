// One step of an optimiser, in place or, with TRIAL, to see what the parameter would become; `moved` is a prelude, with
// the slots. Scalar 1 scales the gradient; where scalar 4 is 0 nothing changes.
struct Dims { count: u32 }

@group(0) @binding(0) var<storage, read_write> param: array<f32>;
@group(0) @binding(1) var<storage, read> grad: array<f32>;
@group(0) @binding(5) var<storage, read> scalars: array<f32>;
@group(0) @binding(6) var<storage, read> before: array<f32>;  // of a trial: the parameter
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let off = scalars[4] == 0.0;
    if (off && !TRIAL) { return; }
    let first = flat_group(group, groups) * (WG * EACH) + lid;
    //@unroll
    for (var j = 0u; j < EACH; j++) {
        let i = first + j * WG;
        if (i < dims.count) {
            if (TRIAL) {
                param[i] = select(moved(before[i], grad[i] * scalars[1], i), before[i], off);
            } else {
                param[i] = moved(param[i], grad[i] * scalars[1], i);
            }
        }
    }
}
