// Column sums: the gradient of each tap of a causal convolution of channels, sum of g[t] x[t - lag], and of the bias, sum of g.
// A workgroup takes COLUMNS channels of a chunk of rows; the partial sums of the chunks lie one below the other for a second
// launch.
struct Dims { rows: u32, length: u32, width: u32, chunk: u32, chunks: u32 }

@group(0) @binding(3) var<storage, read> g: array<f32>;
@group(0) @binding(4) var<storage, read_write> weight_sum: array<f32>;  // (chunks, width, TAPS)
@group(0) @binding(5) var<storage, read_write> bias_sum: array<f32>;    // (chunks, width)
@group(0) @binding(13) var<uniform> dims: Dims;

const LANES: u32 = WG / COLUMNS;
const EACH: u32 = TAPS + 1u;
const SUMS: u32 = WG * EACH;
var<workgroup> sums: array<f32, SUMS>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    let blocks = (dims.width + COLUMNS - 1u) / COLUMNS;
    let chunk = id / blocks;
    let column = id % blocks * COLUMNS + lid % COLUMNS;
    let c = min(column, dims.width - 1u);
    var sum: array<f32, EACH>;
    //@rounds dims.chunk / LANES + 1
    for (var r = chunk * dims.chunk + lid / COLUMNS; r < min(dims.rows, (chunk + 1u) * dims.chunk); r += LANES) {
        let batch = r / dims.length;
        let t = r - batch * dims.length;
        let v = g[r * dims.width + c];
        var seen = true;
        //@unroll
        for (var lag = 0u; lag < TAPS; lag++) {
            if (lag > 0u && lag <= t + 1u) { seen = seen && stays(batch, t + 1u - lag); }
            sum[TAPS - 1u - lag] += select(0.0, v * earlier(batch, t, lag, c), seen);
        }
        sum[TAPS] += v;
    }
    //@unroll
    for (var e = 0u; e < EACH; e++) { sums[e * WG + lid] = sum[e]; }
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if (lid < step * COLUMNS) {
            //@unroll
            for (var e = 0u; e < EACH; e++) { sums[e * WG + lid] += sums[e * WG + lid + step * COLUMNS]; }
        }
        workgroupBarrier();
    }
    if (lid < COLUMNS && column < dims.width && chunk < dims.chunks) {
        let at = chunk * dims.width + column;
        //@unroll
        for (var e = 0u; e < TAPS; e++) { weight_sum[at * TAPS + e] = sums[e * WG + lid]; }
        bias_sum[at] = sums[TAPS * WG + lid];
    }
}
