// Back-propagation through all steps of a recurrent layer; a workgroup a head of a sequence. Each step first turns the gradients of
// its states into those of its pre-activations, unit by unit, then carries the latter through the weights to the step before:
// PARTS invocations share the dot products of COLUMNS units. They hold the first HELD elements of each in registers, see
// `recurrent`. If STAGED, the gradients of the pre-activations lie in workgroup memory too.
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
const DEEP: u32 = BLOCKS * WIDTH;  // pre-activations of a head
const LANES: u32 = WG / PARTS;
const UNITS: u32 = LANES * COLUMNS;
const SHARE: u32 = (DEEP + PARTS - 1u) / PARTS;
const HELDS: u32 = max(HELD * COLUMNS, 1u);
const ALONE: bool = UNITS >= WIDTH;
const WHOLE: bool = SHARE * PARTS == DEEP;  // all parts have as many elements
const ONE_UNIT: bool = WG >= WIDTH;         // an invocation turns the gradients of one unit at most
const STAGE: u32 = max(DEEP * STAGED, 1u);
const SUMS: u32 = PARTS * UNITS;
var<workgroup> carried: array<f32, WIDTH>;
var<workgroup> others: array<f32, ROOM>;  // OTHERS * WIDTH, or 1
var<workgroup> staged: array<f32, STAGE>;
var<workgroup> sums: array<f32, SUMS>;

// What a step of a unit kept and got. Read a step ahead if an invocation has one unit: each read takes as long as a sum.
struct Past { g: f32, y: f32, h: f32, kept: Kept, c: Others }
var<private> past: Past;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups) / HEADS;
    if (row >= dims.batch) { return; }
    let head = flat_group(group, groups) % HEADS * WIDTH;  // its first unit
    let lane = lid % LANES;
    let begin = lid / LANES * SHARE;
    let last = min(DEEP, begin + SHARE);
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
    var held: array<f32, HELDS>;
    //@unroll
    for (var i = 0u; i < HELD; i++) {
        let place = place_of(head, min(begin + i, DEEP - 1u)) * WIDTH;
        //@unroll
        for (var c = 0u; c < COLUMNS; c++) {
            let weight = weights[place + min(c * LANES + lane, WIDTH - 1u)];
            held[i * COLUMNS + c] = select(0.0, weight, WHOLE || begin + i < last);
        }
    }
    if (ONE_UNIT && lid < WIDTH && dims.first < dims.end) { read_past(row, dims.end - 1u, head + lid); }
    storageBarrier();
    workgroupBarrier();
    //@rounds dims.end - dims.first
    for (var back = 0u; back < dims.end - dims.first; back++) {
        let t = dims.end - 1u - back;
        let step = row * dims.length + t;
        for (var unit = lid; unit < WIDTH; unit += WG) {
            let j = head + unit;
            if (!ONE_UNIT) { read_past(row, t, j); }
            let now = past;
            if (ONE_UNIT) { read_past(row, max(t, dims.first + 1u) - 1u, j); }
            var arrived = Others();
            //@unroll
            for (var n = 0u; n < OTHERS; n++) { arrived[n] = others[n * WIDTH + unit]; }
            let s = cell_back(now.g + carried[unit], arrived, now.y, now.kept, now.h, now.c);
            //@unroll
            for (var b = 0u; b < BLOCKS; b++) {
                g_x[step * WIDE + b * HIDDEN + j] = s.x[b];
                if (APART) { g_r[step * WIDE + b * HIDDEN + j] = s.r[b]; }
                if (STAGED > 0u) { staged[b * WIDTH + unit] = select(s.x[b], s.r[b], APART); }
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
            var r: array<f32, COLUMNS>;
            //@unroll
            for (var c = 0u; c < COLUMNS; c++) { r[c] = 0.0; }  // naga sets a variable of a loop to 0 only once
            //@unroll
            for (var i = 0u; i < HELD; i++) {
                let slope = slope_of(step, head, min(begin + i, DEEP - 1u));
                //@unroll
                for (var c = 0u; c < COLUMNS; c++) {
                    r[c] += select(0.0, slope, WHOLE || begin + i < last) * held[i * COLUMNS + c];
                }
            }
            var k = begin + HELD;
            //@rounds (SHARE - HELD) / 4 + 1
            for (; k + 4u < last + 1u; k += 4u) {
                //@unroll
                for (var i = 0u; i < 4u; i++) {
                    let slope = slope_of(step, head, k + i);
                    let place = place_of(head, k + i) * WIDTH;
                    //@unroll
                    for (var c = 0u; c < COLUMNS; c++) {
                        r[c] += slope * weights[place + min(base + c * LANES + lane, WIDTH - 1u)];
                    }
                }
            }
            //@rounds 4
            for (; k < last; k++) {
                let slope = slope_of(step, head, k);
                let place = place_of(head, k) * WIDTH;
                //@unroll
                for (var c = 0u; c < COLUMNS; c++) {
                    r[c] += slope * weights[place + min(base + c * LANES + lane, WIDTH - 1u)];
                }
            }
            //@unroll
            for (var c = 0u; c < COLUMNS; c++) { sums[lid / LANES * UNITS + c * LANES + lane] = r[c]; }
            workgroupBarrier();
            for (var u = lid; u < min(UNITS, WIDTH - base); u += WG) {
                var sum = carried[base + u];
                //@unroll
                for (var p = 0u; p < PARTS; p++) { sum += sums[p * UNITS + u]; }
                if (!forgets(row, t)) { carried[base + u] = sum; }
            }
            // If there is but one block, each invocation goes on with the units that it summed.
            if (!ALONE) { workgroupBarrier(); }
        }
    }
    if (dims.first == 0u) { return; }
    workgroupBarrier();
    for (var j = lid; j < WIDTH; j += WG) {
        let left = (row * dims.length + dims.first - 1u) * WIDE + head + j;
        g_x[left] = carried[j];
        for (var n = 0u; n < OTHERS; n++) { g_x[left + (1u + n) * HIDDEN] = others[n * WIDTH + j]; }
    }
}

// What step t of unit j kept, and the gradient of its output.
fn read_past(row: u32, t: u32, j: u32) {
    let step = row * dims.length + t;
    past.g = gy[step * HIDDEN + j];
    past.y = y[step * HIDDEN + j];
    //@unroll
    for (var b = 0u; b < KEPT; b++) { past.kept[b] = kept[(step * KEPT + b) * HIDDEN + j]; }
    past.h = 0.0;
    past.c = Others();
    if (forgets(row, t)) { return; }
    if (t == 0u) { past.h = given[row * HIDDEN + j]; }
    else { past.h = y[(step - 1u) * HIDDEN + j]; }
    //@unroll
    for (var n = 0u; n < OTHERS; n++) {
        if (t == 0u) { past.c[n] = given[((1u + n) * dims.batch + row) * HIDDEN + j]; }
        else { past.c[n] = kept[((step - 1u) * KEPT + KEPT - OTHERS + n) * HIDDEN + j]; }
    }
}

// Row of the weights of pre-activation k of a head.
fn place_of(head: u32, k: u32) -> u32 {
    if (HEADS == 1u) { return k; }
    return k / WIDTH * HIDDEN + head + k % WIDTH;
}

// The gradient of pre-activation k of a head.
fn slope_of(step: u32, head: u32, k: u32) -> f32 {
    if (STAGED > 0u) { return staged[k]; }
    if (APART) { return g_r[step * WIDE + place_of(head, k)]; }
    return g_x[step * WIDE + place_of(head, k)];
}
