// Back-propagation through all steps of a recurrent layer; a workgroup a head of a sequence. Each step first turns the gradients of
// its states into those of its pre-activations, unit by unit, then carries the latter through the weights to the step before;
// PARTS invocations share a unit's dot product.
//
// A launch goes back from step `end` to step `first`. What it carries further it leaves where the gradients of the step before
// `first` will be, from where the launch that makes them takes it.
struct Dims { batch: u32, length: u32, first: u32, end: u32 }

@group(0) @binding(0) var<storage, read> gy: array<f32>;
@group(0) @binding(1) var<storage, read> y: array<f32>;
@group(0) @binding(2) var<storage, read> kept: array<f32>;
@group(0) @binding(3) var<storage, read> weights: array<f32>;  // (BLOCKS * HIDDEN, WIDTH)
@group(0) @binding(4) var<storage, read> given: array<f32>;    // see graph/given
@group(0) @binding(6) var<storage, read_write> g_x: array<f32>;  // (batch, length, BLOCKS * HIDDEN)
@group(0) @binding(7) var<storage, read_write> g_r: array<f32>;
@group(0) @binding(8) var<storage, read_write> g_direct: array<f32>;  // (n, batch, HIDDEN): of the states beside h0, or of h0 beside its product
@group(0) @binding(13) var<uniform> dims: Dims;

const WIDE: u32 = BLOCKS * HIDDEN;
var<workgroup> carried: array<f32, WIDTH>;
var<workgroup> others: array<f32, ROOM>;  // OTHERS * WIDTH, or 1
const UNITS: u32 = WG / PARTS;
const DEEP: u32 = BLOCKS * WIDTH;  // pre-activations of a head
const SHARE: u32 = (DEEP + PARTS - 1u) / PARTS;
var<workgroup> sums: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups) / HEADS;
    if (row >= dims.batch) { return; }
    let head = flat_group(group, groups) % HEADS * WIDTH;  // its first unit
    for (var j = lid; j < WIDTH; j += WG) {
        let left = (row * dims.length + dims.end - 1u) * WIDE + head + j;
        carried[j] = 0.0;
        if (dims.end < dims.length) { carried[j] = g_x[left]; }
        for (var n = 0u; n < OTHERS; n++) {
            others[n * WIDTH + j] = 0.0;
            if (dims.end < dims.length) { others[n * WIDTH + j] = g_x[left + (1u + n) * HIDDEN]; }
            else if (ARRIVED) {
                others[n * WIDTH + j] = given[((1u + OTHERS + n) * dims.batch + row) * HIDDEN + head + j];
            }
        }
    }
    storageBarrier();
    workgroupBarrier();
    //@rounds dims.end - dims.first
    for (var back = 0u; back < dims.end - dims.first; back++) {
        let t = dims.end - 1u - back;
        let step = row * dims.length + t;
        for (var unit = lid; unit < WIDTH; unit += WG) {
            let j = head + unit;
            var k: Kept;
            //@unroll
            for (var b = 0u; b < KEPT; b++) { k[b] = kept[(step * KEPT + b) * HIDDEN + j]; }
            var h = 0.0;
            var c: Others;
            var arrived: Others;
            if (forgets(row, t)) { h = 0.0; }
            else if (t == 0u) { h = given[row * HIDDEN + j]; }
            else { h = y[(step - 1u) * HIDDEN + j]; }
            //@unroll
            for (var n = 0u; n < OTHERS; n++) {
                if (forgets(row, t)) { c[n] = 0.0; }
                else if (t == 0u) { c[n] = given[((1u + n) * dims.batch + row) * HIDDEN + j]; }
                else { c[n] = kept[(step * KEPT - OTHERS + n) * HIDDEN + j]; }
                arrived[n] = others[n * WIDTH + unit];
            }
            let s = cell_back(gy[step * HIDDEN + j] + carried[unit], arrived, y[step * HIDDEN + j], k, h, c);
            //@unroll
            for (var b = 0u; b < BLOCKS; b++) { g_x[step * WIDE + b * HIDDEN + j] = s.x[b]; }
            if (APART) {
                //@unroll
                for (var b = 0u; b < BLOCKS; b++) { g_r[step * WIDE + b * HIDDEN + j] = s.r[b]; }
            }
            if (DIRECT) {
                if (t == 0u && OTHERS == 0u) { g_direct[row * HIDDEN + j] = s.h; }
            }
            carried[unit] = select(s.h, 0.0, forgets(row, t));
            //@unroll
            for (var n = 0u; n < OTHERS; n++) {
                if (t == 0u) { g_direct[(n * dims.batch + row) * HIDDEN + j] = s.c[n]; }
                others[n * WIDTH + unit] = select(s.c[n], 0.0, forgets(row, t));
            }
        }
        storageBarrier();
        workgroupBarrier();
        for (var base = 0u; base < WIDTH; base += UNITS) {
            let j = base + lid % UNITS;
            let at = min(j, WIDTH - 1u);
            let last = min(DEEP, (lid / UNITS + 1u) * SHARE);
            var sum = array<f32, 4>(0.0, 0.0, 0.0, 0.0);
            var k = lid / UNITS * SHARE;
            //@rounds SHARE / 4 + 1
            for (; k + 4u < last + 1u; k += 4u) {
                //@unroll
                for (var i = 0u; i < 4u; i++) { sum[i] += through(step, head, k + i, at); }
            }
            //@rounds 4
            for (; k < last; k++) { sum[0] += through(step, head, k, at); }
            sums[lid] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
            workgroupBarrier();
            if (lid < UNITS && j < WIDTH && !forgets(row, t)) {
                for (var p = 0u; p < PARTS; p++) { carried[j] += sums[p * UNITS + lid]; }
            }
            workgroupBarrier();
        }
    }
    if (dims.first == 0u) { return; }
    for (var j = lid; j < WIDTH; j += WG) {
        let left = (row * dims.length + dims.first - 1u) * WIDE + head + j;
        g_x[left] = carried[j];
        for (var n = 0u; n < OTHERS; n++) { g_x[left + (1u + n) * HIDDEN] = others[n * WIDTH + j]; }
    }
}

// What pre-activation k of a head adds to the gradient of the head's state `at`.
fn through(step: u32, head: u32, k: u32, at: u32) -> f32 {
    let place = select(k / WIDTH * HIDDEN + head + k % WIDTH, k, HEADS == 1u);
    let weight = weights[place * WIDTH + at];
    if (APART) { return g_r[step * WIDE + place] * weight; }
    return g_x[step * WIDE + place] * weight;
}
