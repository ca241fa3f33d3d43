// All steps of a recurrent layer; a workgroup a sequence. The invocations form PARTS rows of UNITS: those of one column share
// the BLOCKS dot products of a hidden unit with the state before, which lies in workgroup memory; the first row joins their
// sums and runs the cell. The weights come transposed, so that neighbours read neighbours.
struct Dims { batch: u32, length: u32, first: u32, end: u32 }  // of all steps, those that this launch makes

@group(0) @binding(0) var<storage, read> from_x: array<f32>;   // (batch, length, BLOCKS * HIDDEN)
@group(0) @binding(1) var<storage, read> weights: array<f32>;  // (HIDDEN, BLOCKS * HIDDEN)
@group(0) @binding(2) var<storage, read> given: array<f32>;    // see graph/given
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;     // (batch, length, HIDDEN)
@group(0) @binding(6) var<storage, read_write> kept: array<f32>;  // (batch, length, KEPT * HIDDEN)
@group(0) @binding(13) var<uniform> dims: Dims;

const WIDE: u32 = BLOCKS * HIDDEN;
const UNITS: u32 = WG / PARTS;
const SHARE: u32 = (HIDDEN + PARTS - 1u) / PARTS;  // elements of a dot product for each part
const SUMS: u32 = PARTS * BLOCKS * UNITS;
var<workgroup> state: array<f32, HIDDEN>;
var<workgroup> sums: array<f32, SUMS>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups);
    if (row >= dims.batch) { return; }
    let part = lid / UNITS;
    let last = min(HIDDEN, (part + 1u) * SHARE);
    for (var j = lid; j < HIDDEN; j += WG) {
        if (forgets(row, dims.first)) { state[j] = 0.0; }
        else if (dims.first == 0u) { state[j] = given[row * HIDDEN + j]; }
        else { state[j] = y[(row * dims.length + dims.first - 1u) * HIDDEN + j]; }
    }
    workgroupBarrier();
    //@rounds dims.end - dims.first
    for (var t = dims.first; t < dims.end; t++) {
        let step = row * dims.length + t;
        for (var base = 0u; base < HIDDEN; base += UNITS) {
            let j = base + lid % UNITS;
            let at = min(j, HIDDEN - 1u);
            var r = array<f32, 4>(0.0, 0.0, 0.0, 0.0);
            var k = part * SHARE;
            //@rounds SHARE / UNROLL + 1
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
                workgroupBarrier();
                if (part == 0u) {
                    for (var p = 1u; p < PARTS; p++) {
                        //@unroll
                        for (var b = 0u; b < BLOCKS; b++) { r[b] += sums[(p * BLOCKS + b) * UNITS + lid]; }
                    }
                }
            }
            if (part == 0u && j < HIDDEN) { advance(row, t, step, j, r); }
            if (PARTS > 1u) { workgroupBarrier(); }
        }
        storageBarrier();
        workgroupBarrier();
        for (var j = lid; j < HIDDEN; j += WG) { state[j] = select(y[step * HIDDEN + j], 0.0, forgets(row, t + 1u)); }
        workgroupBarrier();
    }
}

// One unit's step, from its dot products.
fn advance(row: u32, t: u32, step: u32, j: u32, dots: array<f32, 4>) {
    var r = dots;
    var x: array<f32, 4>;
    //@unroll
    for (var b = 0u; b < BLOCKS; b++) {
        x[b] = from_x[step * WIDE + b * HIDDEN + j];
        if (BIAS) { r[b] += bias[b * HIDDEN + j]; }
    }
    var c = 0.0;
    if (SECOND) {
        if (forgets(row, t)) { c = 0.0; }
        else if (t == 0u) { c = given[(dims.batch + row) * HIDDEN + j]; }
        else { c = kept[(step * KEPT - 1u) * HIDDEN + j]; }
    }
    let s = cell(x, r, state[j], c);
    y[step * HIDDEN + j] = s.h;
    //@unroll
    for (var b = 0u; b < KEPT; b++) { kept[(step * KEPT + b) * HIDDEN + j] = s.kept[b]; }
}
