// Gradients of one step of a recurrent cell; an invocation for each unit of a row.
struct Dims { count: u32 }

@group(0) @binding(0) var<storage, read> gy: array<f32>;       // (rows, HIDDEN)
@group(0) @binding(1) var<storage, read> g_others: array<f32>; // (OTHERS, rows, HIDDEN)
@group(0) @binding(2) var<storage, read> y: array<f32>;        // of cells that keep nothing
@group(0) @binding(3) var<storage, read> others: array<f32>;
@group(0) @binding(4) var<storage, read> saved: array<f32>;     // (rows, (KEPT - OTHERS) * HIDDEN)
@group(0) @binding(5) var<storage, read> before: array<f32>;   // (DIRECT, rows, HIDDEN)
@group(0) @binding(6) var<storage, read_write> g_x: array<f32>; // (rows, BLOCKS * HIDDEN)
@group(0) @binding(7) var<storage, read_write> g_r: array<f32>;
@group(0) @binding(8) var<storage, read_write> g_before: array<f32>;
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
    var k: Kept;
    var c: Others;
    var arrived: Others;
    //@unroll
    for (var b = 0u; b < KEEPS; b++) { k[b] = saved[(row * KEEPS + b) * HIDDEN + j]; }
    //@unroll
    for (var n = 0u; n < OTHERS; n++) {
        k[KEEPS + n] = others[n * dims.count + at];
        c[n] = before[n * dims.count + at];
        arrived[n] = g_others[n * dims.count + at];
    }
    var h = 0.0;
    var shown = 0.0;
    if (OTHERS == 0u && DIRECT > 0u) { h = before[at]; }
    if (KEPT == 0u) { shown = y[at]; }
    let s = cell_back(gy[at], arrived, shown, k, h, c);
    //@unroll
    for (var b = 0u; b < BLOCKS; b++) { g_x[row * WIDE + b * HIDDEN + j] = s.x[b]; }
    if (APART) {
        //@unroll
        for (var b = 0u; b < BLOCKS; b++) { g_r[row * WIDE + b * HIDDEN + j] = s.r[b]; }
    }
    if (OTHERS == 0u && DIRECT > 0u) { g_before[at] = s.h; }
    //@unroll
    for (var n = 0u; n < OTHERS; n++) { g_before[n * dims.count + at] = s.c[n]; }
}
