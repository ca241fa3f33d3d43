// Back-propagation through all steps of a recurrent layer; a workgroup a sequence. Each step first turns the gradients of
// its states into those of its pre-activations, unit by unit, then carries the latter through the weights to the step before;
// PARTS invocations share a unit's dot product.
//
// A launch goes back from step `end` to step `first`. What it carries further it leaves where the gradients of the step before
// `first` will be, from where the launch that makes them takes it.
struct Dims { batch: u32, length: u32, first: u32, end: u32 }

@group(0) @binding(0) var<storage, read> gy: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read> kept: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;  // (BLOCKS * HIDDEN, HIDDEN)
@group(0) @binding(4) var<storage, read> given: array<f32>;    // see graph/given
@group(0) @binding(6) var<storage, read_write> g_x: array<f32>;  // (batch, length, BLOCKS * HIDDEN)
@group(0) @binding(7) var<storage, read_write> g_r: array<f32>;
@group(0) @binding(8) var<storage, read_write> g_direct: array<f32>;  // (1, batch, HIDDEN): of c0, or of h0 beside its product
@group(0) @binding(13) var<uniform> dims: Dims;

const WIDE: u32 = BLOCKS * HIDDEN;
var<workgroup> carried: array<f32, HIDDEN>;
var<workgroup> carried_c: array<f32, HIDDEN>;
const UNITS: u32 = WG / PARTS;
const SHARE: u32 = (WIDE + PARTS - 1u) / PARTS;
var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups);
    if (row >= dims.batch) { return; }
    for (var j = lid; j < HIDDEN; j += WG) {
        let left = (row * dims.length + dims.end - 1u) * WIDE + j;
        carried[j] = 0.0;
        if (dims.end < dims.length) { carried[j] = g_x[left]; }
        if (SECOND) {
            carried_c[j] = 0.0;
            if (dims.end < dims.length) { carried_c[j] = g_x[left + HIDDEN]; }
            else if (ARRIVED) { carried_c[j] = given[(2u * dims.batch + row) * HIDDEN + j]; }
        }
    }
    storageBarrier();
    workgroupBarrier();
    //@rounds dims.end - dims.first
    for (var back = 0u; back < dims.end - dims.first; back++) {
        let t = dims.end - 1u - back;
        let step = row * dims.length + t;
        for (var j = lid; j < HIDDEN; j += WG) {
            var k: array<f32, 5>;
            //@unroll
            for (var b = 0u; b < KEPT; b++) { k[b] = kept[(step * KEPT + b) * HIDDEN + j]; }
            var h = 0.0;
            var c = 0.0;
            var gc = 0.0;
            if (forgets(row, t)) { h = 0.0; }
            else if (t == 0u) { h = given[row * HIDDEN + j]; }
            else { h = y[(step - 1u) * HIDDEN + j]; }
            if (SECOND) {
                if (forgets(row, t)) { c = 0.0; }
                else if (t == 0u) { c = given[(dims.batch + row) * HIDDEN + j]; }
                else { c = kept[(step * KEPT - 1u) * HIDDEN + j]; }
                gc = carried_c[j];
            }
            let s = cell_back(gy[step * HIDDEN + j] + carried[j], gc, y[step * HIDDEN + j], k, h, c);
            //@unroll
            for (var b = 0u; b < BLOCKS; b++) { g_x[step * WIDE + b * HIDDEN + j] = s.x[b]; }
            if (APART) {
                //@unroll
                for (var b = 0u; b < BLOCKS; b++) { g_r[step * WIDE + b * HIDDEN + j] = s.r[b]; }
            }
            if (DIRECT) {
                if (t == 0u) { g_direct[row * HIDDEN + j] = select(s.h, s.c, SECOND); }
            }
            carried[j] = select(s.h, 0.0, forgets(row, t));
            if (SECOND) { carried_c[j] = select(s.c, 0.0, forgets(row, t)); }
        }
        storageBarrier();
        workgroupBarrier();
        for (var base = 0u; base < HIDDEN; base += UNITS) {
            let j = base + lid % UNITS;
            let at = min(j, HIDDEN - 1u);
            let last = min(WIDE, (lid / UNITS + 1u) * SHARE);
            var sum = array<f32, 4>(0.0, 0.0, 0.0, 0.0);
            var k = lid / UNITS * SHARE;
            //@rounds SHARE / 4 + 1
            for (; k + 4u < last + 1u; k += 4u) {
                //@unroll
                for (var i = 0u; i < 4u; i++) { sum[i] += before(step * WIDE + k + i) * weights[(k + i) * HIDDEN + at]; }
            }
            //@rounds 4
            for (; k < last; k++) { sum[0] += before(step * WIDE + k) * weights[k * HIDDEN + at]; }
            sums[lid] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            workgroupBarrier();
            if (lid < UNITS && j < HIDDEN && !forgets(row, t)) {
                for (var p = 0u; p < PARTS; p++) { carried[j] += sums[p * UNITS + lid]; }
            }
            workgroupBarrier();
        }
    }
    if (dims.first == 0u) { return; }
    for (var j = lid; j < HIDDEN; j += WG) {
        let left = (row * dims.length + dims.first - 1u) * WIDE + j;
        g_x[left] = carried[j];
        if (SECOND) { g_x[left + HIDDEN] = carried_c[j]; }
    }
}

fn before(at: u32) -> f32 {
    if (APART) { return g_r[at]; }
    return g_x[at];
}
