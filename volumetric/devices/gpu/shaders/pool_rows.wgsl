// The rows of each whole sequence of a call as one: y[sequence] = their mean, maximum, … without the first args.skipped, of
// which the last row always remains. TEAMS invocations share the rows of a vector.
struct Args { skipped: u32 }

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;        // (rows, WIDTH4)
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;  // (sequences, STRIDE4), from vector AT4 on

const MEAN: u32 = 0u;
const MEAN_SQRT_LEN: u32 = 1u;
const WEIGHTED: u32 = 2u;
const MAX: u32 = 3u;
const FIRST: u32 = 4u;
const LAST: u32 = 5u;
const TEAMS: u32 = WG / COLUMNS;

var<workgroup> shares: array<vec4<f32>, WG>;

// NaN stays; comparisons alone would lose it.
fn larger(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let nan = (bitcast<vec4<u32>>(b) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
    return select(a, b, (b > a) | nan);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let column = group.x * COLUMNS + lid % COLUMNS;
    let own = min(column, WIDTH4 - 1u);
    let team = lid / COLUMNS;
    let place = ctl.places[min(group.y, PLACES - 1u)];
    let start = place.w;
    let end = place.z;
    let first = start + min(args.skipped, end - start - 1u);
    let out = group.y * STRIDE4 + AT4 + column;
    if (POOLING == FIRST || POOLING == LAST) {
        let row = select(end - 1u, first, POOLING == FIRST);
        if (team == 0u && column < WIDTH4 && group.y < ctl.pieces) { y[out] = x[row * WIDTH4 + own]; }
        return;
    }
    // Of a team without rows the last row counts for a maximum, and nothing for a sum.
    var share = vec4<f32>(0.0);
    if (POOLING == MAX) { share = x[(end - 1u) * WIDTH4 + own]; }
    //@rounds CONTEXT / TEAMS + 1
    for (var row = first + team; row < end; row += TEAMS) {
        let value = x[row * WIDTH4 + own];
        if (POOLING == MAX) {
            share = larger(share, value);
        } else if (POOLING == WEIGHTED) {
            share += f32(row - start + 1u) * value;
        } else {
            share += value;
        }
    }
    shares[lid] = share;
    workgroupBarrier();
    if (team > 0u || column >= WIDTH4 || group.y >= ctl.pieces) { return; }
    //@rounds TEAMS
    for (var other = 1u; other < TEAMS; other++) {
        let value = shares[other * COLUMNS + lid];
        if (POOLING == MAX) { share = larger(share, value); } else { share += value; }
    }
    let count = f32(end - first);
    let before = f32(first - start);
    if (POOLING == MEAN) { share /= count; }
    if (POOLING == MEAN_SQRT_LEN) { share /= sqrt(count); }
    if (POOLING == WEIGHTED) { share /= count * (before + 0.5 * (count + 1.0)); }
    y[out] = share;
}
