// One step of a recurrent cell for each sequence of a call: row args.step of the sequence, from the products of the row
// and of the state before. A state is stored at its position modulo RING, so the last few remain available: positions
// in flight that are discarded leave the states before them unchanged.
struct Args { step: u32 }

@group(0) @binding(0) var<storage, read> from_x: array<f32>;  // (rows, WIDE)
@group(0) @binding(1) var<storage, read> from_h: array<f32>;  // (pieces, WIDE)
@group(0) @binding(2) var<storage, read_write> h: array<f32>;  // (lines, RING, STRIDE)
@group(0) @binding(3) var<storage, read_write> c: array<f32>;  // the same
@group(0) @binding(4) var<storage, read_write> y: array<f32>;  // (rows, STRIDE)

const WIDE: u32 = (BLOCKS * HIDDEN + 3u) / 4u * 4u;
const STRIDE: u32 = (HIDDEN + 3u) / 4u * 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let j = group.x * WG + lid;
    if (group.y >= ctl.pieces || j >= HIDDEN) { return; }
    let place = ctl.places[group.y];
    let start = place.w;
    let row = start + args.step;
    if (row >= place.z) { return; }
    let position = place.x + args.step;
    let before = (place.y * RING + position % RING) * STRIDE + j;
    let after = (place.y * RING + (position + 1u) % RING) * STRIDE + j;
    var from_row: array<f32, 4>;
    var from_state: array<f32, 4>;
    //@unroll
    for (var b = 0u; b < BLOCKS; b++) {
        from_row[b] = from_x[row * WIDE + b * HIDDEN + j];
        from_state[b] = from_h[group.y * WIDE + b * HIDDEN + j];
    }
    var c_before: Others;
    if (HAS_C && position > 0u) { c_before[0] = c[before]; }
    var h_before = 0.0;
    if (position > 0u) { h_before = h[before]; }
    let s = cell(from_row, from_state, h_before, c_before);
    h[after] = s.h;
    if (HAS_C) { c[after] = s.kept[4]; }
    y[row * STRIDE + j] = s.h;
}
