// One step of a recurrent cell; an invocation for each unit of a row. `together` rows have one row of the bias.
struct Dims { count: u32, rows: u32, together: u32 }

@group(0) @binding(0) var<storage, read> from_x: array<f32>;  // (rows, BLOCKS * HIDDEN)
@group(0) @binding(1) var<storage, read> from_h: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;    // (rows / together, BLOCKS * HIDDEN)
@group(0) @binding(3) var<storage, read> before: array<f32>;  // (DIRECT, rows, HIDDEN)
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // (rows, HIDDEN)
@group(0) @binding(5) var<storage, read_write> others: array<f32>; // (OTHERS, rows, HIDDEN)
@group(0) @binding(6) var<storage, read_write> saved: array<f32>;   // (rows, (KEPT - OTHERS) * HIDDEN)
@group(0) @binding(13) var<uniform> dims: Dims;

const WIDE: u32 = BLOCKS * HIDDEN;
const KEEPS: u32 = KEPT - OTHERS;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let row = at / HIDDEN;
    let j = at % HIDDEN;
    var x: array<f32, 4>;
    var r: array<f32, 4>;
    //@unroll
    for (var b = 0u; b < BLOCKS; b++) {
        x[b] = from_x[row * WIDE + b * HIDDEN + j] + bias[row / dims.together * WIDE + b * HIDDEN + j];
        r[b] = from_h[row * WIDE + b * HIDDEN + j];
    }
    var h = 0.0;
    var c: Others;
    if (OTHERS == 0u && DIRECT > 0u) { h = before[at]; }
    //@unroll
    for (var n = 0u; n < OTHERS; n++) { c[n] = before[n * dims.count + at]; }
    let s = cell(x, r, h, c);
    y[at] = s.h;
    //@unroll
    for (var n = 0u; n < OTHERS; n++) { others[n * dims.count + at] = s.kept[KEEPS + n]; }
    if (KEEP) {
        //@unroll
        for (var b = 0u; b < KEEPS; b++) { saved[(row * KEEPS + b) * HIDDEN + j] = s.kept[b]; }
    }
}
