// All steps of a recurrent layer; a workgroup a head of a sequence. The invocations form PARTS rows of UNITS: those of one column share
// the BLOCKS dot products of a hidden unit with the state before, which lies in workgroup memory; the first row joins their
// sums and runs the cell. The weights come transposed, so that neighbours read neighbours.
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
var<workgroup> state: array<f32, WIDTH>;
var<workgroup> sums: array<f32, SUMS>;

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
    let last = min(WIDTH, (part + 1u) * SHARE);
    for (var j = lid; j < WIDTH; j += WG) {
        if (forgets(row, dims.first)) { state[j] = 0.0; }
        else if (dims.first == 0u) { state[j] = given[row * HIDDEN + head + j]; }
        else { state[j] = y[(row * dims.length + dims.first - 1u) * HIDDEN + head + j]; }
    }
    workgroupBarrier();
    //@rounds dims.end - dims.first
    for (var t = dims.first; t < dims.end; t++) {
        let step = row * dims.length + t;
        for (var base = 0u; base < WIDTH; base += UNITS) {
            let j = base + lid % UNITS;
            let at = head + min(j, WIDTH - 1u);
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
            if (part == 0u && j < WIDTH) { advance(row, t, step, head + j, state[j], r); }
            if (PARTS > 1u) { workgroupBarrier(); }
        }
        storageBarrier();
        workgroupBarrier();
        for (var j = lid; j < WIDTH; j += WG) { state[j] = select(y[step * HIDDEN + head + j], 0.0, forgets(row, t + 1u)); }
        workgroupBarrier();
    }
}

// One unit's step, from its dot products.
fn advance(row: u32, t: u32, step: u32, j: u32, h: f32, dots: array<f32, 4>) {
    var r = dots;
    var x: array<f32, 4>;
    //@unroll
    for (var b = 0u; b < BLOCKS; b++) {
        x[b] = from_x[step * WIDE + b * HIDDEN + j];
        if (BIAS) { r[b] += bias[b * HIDDEN + j]; }
    }
    var c: Others;
    if (OTHERS > 0u && !forgets(row, t)) {
        //@unroll
        for (var n = 0u; n < OTHERS; n++) {
            if (t == 0u) { c[n] = given[((1u + n) * dims.batch + row) * HIDDEN + j]; }
            else { c[n] = kept[(step * KEPT - OTHERS + n) * HIDDEN + j]; }
        }
    }
    let s = cell(x, r, h, c);
    y[step * HIDDEN + j] = s.h;
    //@unroll
    for (var b = 0u; b < KEPT; b++) { kept[(step * KEPT + b) * HIDDEN + j] = s.kept[b]; }
}
