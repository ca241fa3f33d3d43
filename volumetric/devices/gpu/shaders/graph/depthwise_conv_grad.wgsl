// The gradients of the rows of a causal convolution of channels, those of its past first: each row adds to the rows up to
// TAPS - 1 later, until one of them is a reset.
struct Dims { count: u32, length: u32, width: u32 }

@group(0) @binding(0) var<storage, read> g: array<f32>;       // (batch, length, width)
@group(0) @binding(1) var<storage, read> weight: array<f32>;  // (width, TAPS)
@group(0) @binding(2) var<storage, read> keep: array<f32>;    // (batch, length)
@group(0) @binding(3) var<storage, read_write> gx: array<f32>;
@group(0) @binding(4) var<storage, read_write> gpast: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let row = at / dims.width;
    let c = at - row * dims.width;
    let batch = row / (dims.length + TAPS - 1u);
    let place = row - batch * (dims.length + TAPS - 1u);  // TAPS - 1 more than the row's number
    var sum = 0.0;
    var seen = true;
    //@unroll
    for (var lag = 0u; lag < TAPS; lag++) {
        let later = place + lag;
        let t = later - (TAPS - 1u);
        if (later >= TAPS - 1u && t < dims.length) {
            if (RESETS && lag > 0u) { seen = seen && keep[batch * dims.length + t] != 0.0; }
            if (seen) { sum += g[(batch * dims.length + t) * dims.width + c] * weight[c * TAPS + TAPS - 1u - lag]; }
        }
    }
    if (place < TAPS - 1u) { gpast[(batch * (TAPS - 1u) + place) * dims.width + c] = sum; }
    else { gx[(batch * dims.length + place + 1u - TAPS) * dims.width + c] = sum; }
}
