// y[t] = bias + sum of weight[TAPS - 1 - lag] x[t - lag], channel by channel, over the lags without a reset in between.
struct Dims { count: u32, length: u32, width: u32 }

@group(0) @binding(3) var<storage, read> weight: array<f32>;  // (width, TAPS)
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let first = flat_group(group, groups) * WG;
    let at = first + lid;
    if (is_idle(first, min(first + WG, dims.count)) || at >= dims.count) { return; }
    let row = at / dims.width;
    let c = at - row * dims.width;
    let batch = row / dims.length;
    let t = row - batch * dims.length;
    var sum = 0.0;
    var seen = true;
    //@unroll
    for (var lag = 0u; lag < TAPS; lag++) {
        if (lag > 0u && lag <= t + 1u) { seen = seen && stays(batch, t + 1u - lag); }
        sum += select(0.0, earlier(batch, t, lag, c), seen) * weight[c * TAPS + TAPS - 1u - lag];
    }
    if (BIAS) { sum += bias[c]; }
    y[at] = sum;
}
