// Column sums: ggain = sum over rows of g n, gbias = sum of g, with n = (x - mean - shift) rstd. A workgroup takes COLUMNS
// columns of a chunk of rows, and each invocation reads four rows at once; the partial sums of the chunks lie one below the
// other for a second launch.
struct Dims { rows: u32, width: u32, chunk: u32, chunks: u32 }

@group(0) @binding(0) var<storage, read> g: array<f32>;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> stats: array<f32>;  // (mean, rstd, shift) of each row
@group(0) @binding(3) var<storage, read_write> gain_sum: array<f32>;
@group(0) @binding(4) var<storage, read_write> bias_sum: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

const LANES: u32 = WG / COLUMNS;
var<workgroup> sums: array<vec2<f32>, WG>;

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
    let at = min(column, dims.width - 1u);
    var sum = vec2<f32>(0.0);
    let stop = min(dims.rows, (chunk + 1u) * dims.chunk);
    //@rounds dims.chunk / (4 * LANES) + 1
    for (var r = chunk * dims.chunk + lid / COLUMNS; r < stop; r += 4u * LANES) {
        var v: array<f32, 4>;
        var n: array<f32, 4>;
        //@unroll
        for (var j = 0u; j < 4u; j++) {
            let row = min(r + j * LANES, stop - 1u);
            v[j] = g[row * dims.width + at];
            n[j] = ((x[row * dims.width + at] - stats[3u * row]) - stats[3u * row + 2u]) * stats[3u * row + 1u];
        }
        //@unroll
        for (var j = 0u; j < 4u; j++) {
            sum += select(vec2<f32>(0.0), vec2<f32>(v[j] * n[j], v[j]), r + j * LANES < stop);
        }
    }
    sums[lid] = sum;
    workgroupBarrier();
    for (var step = LANES / 2u; step > 0u; step = step / 2u) {
        if (lid < step * COLUMNS) { sums[lid] += sums[lid + step * COLUMNS]; }
        workgroupBarrier();
    }
    if (lid < COLUMNS && column < dims.width && chunk < dims.chunks) {
        gain_sum[chunk * dims.width + column] = sums[lid].x;
        if (BIAS) { bias_sum[chunk * dims.width + column] = sums[lid].y; }
    }
}
