// A causal convolution of each channel over the rows of a sequence, columns START … of x. An invocation of slice 0
// computes the first rows of a sequence, which see the rows before it, and stores the last ones for the next call: no
// other invocation reads the rows that it overwrites. All other rows, SLICES apart, read only rows of the call.
@group(0) @binding(0) var<storage, read> x: array<f32>;            // (rows, X_STRIDE)
@group(0) @binding(1) var<storage, read> conv_params: array<f32>;  // (TAPS, STRIDE), then bias
@group(0) @binding(2) var<storage, read_write> past: array<f32>;   // (lines, RING, HELD)
@group(0) @binding(3) var<storage, read_write> y: array<f32>;      // (rows, STRIDE)

const STRIDE: u32 = (CHANNELS + 3u) / 4u * 4u;
const REACH: u32 = TAPS - 1u;
const HELD: u32 = (REACH * CHANNELS + 3u) / 4u * 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let j = group.x * WG + lid;
    if (group.y >= ctl.pieces || j >= CHANNELS) { return; }
    let place = ctl.places[group.y];
    let start = place.w;
    let end = place.z;
    let before = (place.y * RING + place.x % RING) * HELD + j;
    if (group.z == 0u) {
        //@rounds REACH
        for (var row = start; row < min(start + REACH, end); row++) {
            var sum = conv_params[TAPS * STRIDE + j];
            for (var k = 0u; k < TAPS; k++) {
                let source = row + k;  // REACH rows later
                var v = 0.0;
                if (source >= start + REACH) { v = x[(source - REACH) * X_STRIDE + START + j]; }
                else if (place.x > 0u) { v = past[before + (source - start) * CHANNELS]; }
                sum += v * conv_params[k * STRIDE + j];
            }
            y[row * STRIDE + j] = apply(sum);
        }
        let after = (place.y * RING + (place.x + end - start) % RING) * HELD + j;
        for (var k = 0u; k < REACH; k++) {
            let source = end + k;
            var v = 0.0;
            if (source >= start + REACH) { v = x[(source - REACH) * X_STRIDE + START + j]; }
            else if (place.x > 0u) { v = past[before + (source - start) * CHANNELS]; }
            past[after + k * CHANNELS] = v;
        }
    }
    //@rounds MOST / SLICES + 1
    for (var row = start + REACH + group.z; row < end; row += SLICES) {
        var sum = conv_params[TAPS * STRIDE + j];
        for (var k = 0u; k < TAPS; k++) { sum += x[(row + k - REACH) * X_STRIDE + START + j] * conv_params[k * STRIDE + j]; }
        y[row * STRIDE + j] = apply(sum);
    }
}
