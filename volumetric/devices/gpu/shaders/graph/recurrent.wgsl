// All steps of a recurrent layer; a workgroup a head of a sequence. The invocations form PARTS rows of UNITS: those of one column share
// the BLOCKS dot products of a hidden unit with the state before, which lies in workgroup memory; the first row joins their
// sums and runs the cell. The weights come transposed, so that neighbours read neighbours.
//
// Every step needs all weights, and one processor reads them more slowly than it multiplies. So each invocation has the first
// HELD elements of its dot products in registers; the others should fit its caches. If a column is one unit (ALONE), its first
// invocation keeps the unit's other states in registers too, writes its output where the next step reads it, and reads what
// comes from x a step ahead.
struct Dims { batch: u32, length: u32, first: u32, end: u32 }  // of all steps, those that this launch makes

@group(0) @binding(0) var<storage, read> from_x: array<f32>;   // (batch, length, BLOCKS * HIDDEN)
@group(0) @binding(1) var<storage, read> weights: array<f32>;  // (WIDTH, BLOCKS * HIDDEN)
@group(0) @binding(2) var<storage, read> given: array<f32>;    // see graph/given
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;     // (batch, length, HIDDEN)
@group(0) @binding(6) var<storage, read_write> kept: array<f32>;  // (batch, length, KEPT * HIDDEN)
@group(0) @binding(13) var<uniform> dims: Dims;

const WIDE: u32 = BLOCKS * HIDDEN;
const UNITS: u32 = WG / PARTS;
const SHARE: u32 = (WIDTH + PARTS - 1u) / PARTS;  // elements of a dot product for each part
const SUMS: u32 = PARTS * BLOCKS * UNITS;
const HELDS: u32 = max(HELD * BLOCKS, 1u);
const ALONE: bool = UNITS >= WIDTH;
const WHOLE: bool = SHARE * PARTS == WIDTH;  // all parts have as many elements
var<workgroup> state: array<f32, WIDTH>;
var<workgroup> sums: array<f32, SUMS>;
var<private> arriving: array<f32, 4>;  // from x, for a unit's next step
var<private> others: Others;           // of a unit, before its next step

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups) / HEADS;
    if (row >= dims.batch) { return; }
    let head = flat_group(group, groups) % HEADS * WIDTH;  // its first unit
    let part = lid / UNITS;
    let begin = part * SHARE;
    let last = min(WIDTH, begin + SHARE);
    for (var j = lid; j < WIDTH; j += WG) {
        if (forgets(row, dims.first)) { state[j] = 0.0; }
        else if (dims.first == 0u) { state[j] = given[row * HIDDEN + head + j]; }
        else { state[j] = y[(row * dims.length + dims.first - 1u) * HIDDEN + head + j]; }
    }
    var held: array<f32, HELDS>;
    //@unroll
    for (var i = 0u; i < HELD; i++) {
        let k = min(begin + i, WIDTH - 1u);
        //@unroll
        for (var b = 0u; b < BLOCKS; b++) {
            let weight = weights[k * WIDE + b * HIDDEN + head + min(lid % UNITS, WIDTH - 1u)];
            held[i * BLOCKS + b] = select(0.0, weight, WHOLE || begin + i < last);
        }
    }
    if (ALONE && part == 0u && dims.first < dims.end) {
        let j = head + min(lid, WIDTH - 1u);
        read_arriving(row * dims.length + dims.first, j);
        read_others(row, dims.first, j);
    }
    workgroupBarrier();
    //@rounds dims.end - dims.first
    for (var t = dims.first; t < dims.end; t++) {
        let step = row * dims.length + t;
        for (var base = 0u; base < WIDTH; base += UNITS) {
            let j = base + lid % UNITS;
            let at = head + min(j, WIDTH - 1u);
            if (!ALONE && part == 0u) {
                read_arriving(step, at);
                read_others(row, t, at);
            }
            let x = arriving;
            if (ALONE && part == 0u) { read_arriving(row * dims.length + min(t + 1u, dims.end - 1u), at); }
            var r = array<f32, 4>(0.0, 0.0, 0.0, 0.0);
            //@unroll
            for (var i = 0u; i < HELD; i++) {
                let h = select(0.0, state[min(begin + i, WIDTH - 1u)], WHOLE || begin + i < last);
                //@unroll
                for (var b = 0u; b < BLOCKS; b++) { r[b] += h * held[i * BLOCKS + b]; }
            }
            var k = begin + HELD;
            //@rounds (SHARE - HELD) / UNROLL + 1
            for (; k + UNROLL < last + 1u; k += UNROLL) {
                //@unroll
                for (var i = 0u; i < UNROLL; i++) {
                    let h = state[k + i];
                    //@unroll
                    for (var b = 0u; b < BLOCKS; b++) { r[b] += h * weights[(k + i) * WIDE + b * HIDDEN + at]; }
                }
            }
            //@rounds UNROLL
            for (; k < last; k++) {
                //@unroll
                for (var b = 0u; b < BLOCKS; b++) { r[b] += state[k] * weights[k * WIDE + b * HIDDEN + at]; }
            }
            if (PARTS > 1u) {
                //@unroll
                for (var b = 0u; b < BLOCKS; b++) { sums[(part * BLOCKS + b) * UNITS + lid % UNITS] = r[b]; }
            }
            if (PARTS > 1u || ALONE) { workgroupBarrier(); }
            if (part == 0u && j < WIDTH) {
                //@unroll
                for (var p = 1u; p < PARTS; p++) {
                    //@unroll
                    for (var b = 0u; b < BLOCKS; b++) { r[b] += sums[(p * BLOCKS + b) * UNITS + lid]; }
                }
                let h = advance(step, head + j, x, state[j], r);
                if (ALONE) {
                    let forgotten = forgets(row, t + 1u);
                    state[j] = select(h, 0.0, forgotten);
                    if (forgotten) { others = Others(); }
                }
            }
            if (PARTS > 1u || ALONE) { workgroupBarrier(); }
        }
        if (!ALONE) {
            storageBarrier();
            workgroupBarrier();
            for (var j = lid; j < WIDTH; j += WG) {
                state[j] = select(y[step * HIDDEN + head + j], 0.0, forgets(row, t + 1u));
            }
            workgroupBarrier();
        }
    }
}

// What comes from x for a step of unit j.
fn read_arriving(step: u32, j: u32) {
    //@unroll
    for (var b = 0u; b < BLOCKS; b++) { arriving[b] = from_x[step * WIDE + b * HIDDEN + j]; }
}

// The states of unit j beside h, before step t.
fn read_others(row: u32, t: u32, j: u32) {
    others = Others();
    if (OTHERS == 0u || forgets(row, t)) { return; }
    //@unroll
    for (var n = 0u; n < OTHERS; n++) {
        if (t == 0u) { others[n] = given[((1u + n) * dims.batch + row) * HIDDEN + j]; }
        else { others[n] = kept[((row * dims.length + t - 1u) * KEPT + KEPT - OTHERS + n) * HIDDEN + j]; }
    }
}

// One unit's step, from its dot products; its new output.
fn advance(step: u32, j: u32, x: array<f32, 4>, h: f32, dots: array<f32, 4>) -> f32 {
    var r = dots;
    if (BIAS) {
        //@unroll
        for (var b = 0u; b < BLOCKS; b++) { r[b] += bias[b * HIDDEN + j]; }
    }
    let s = cell(x, r, h, others);
    y[step * HIDDEN + j] = s.h;
    //@unroll
    for (var b = 0u; b < KEPT; b++) { kept[(step * KEPT + b) * HIDDEN + j] = s.kept[b]; }
    //@unroll
    for (var n = 0u; n < OTHERS; n++) { others[n] = s.kept[KEPT - OTHERS + n]; }
    return s.h;
}
