// Rows of a causal convolution of channels: those before the first one are in `past`. A row whose `keep` is 0 sees nothing
// before it.
@group(0) @binding(0) var<storage, read> x: array<f32>;       // (batch, length, width)
@group(0) @binding(1) var<storage, read> past: array<f32>;    // (batch, TAPS - 1, width)
@group(0) @binding(2) var<storage, read> keep: array<f32>;    // (batch, length)

fn stays(batch: u32, t: u32) -> bool {
    if (!RESETS) { return true; }
    return keep[batch * dims.length + t] != 0.0;
}

// Channel c of the row `lag` before row t.
fn earlier(batch: u32, t: u32, lag: u32, c: u32) -> f32 {
    if (t >= lag) { return x[(batch * dims.length + t - lag) * dims.width + c]; }
    return past[(batch * (TAPS - 1u) + t + TAPS - 1u - lag) * dims.width + c];
}
