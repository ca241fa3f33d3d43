// All steps of a recurrent layer; a workgroup a sequence. An invocation computes units lid, lid + WG, ... of each step: their
// BLOCKS dot products with the state before, which lies in workgroup memory, and the cell. The weights come transposed, so
// that neighbours read neighbours.
struct Dims { batch: u32, length: u32 }

@group(0) @binding(0) var<storage, read> from_x: array<f32>;   // (batch, length, BLOCKS * HIDDEN)
@group(0) @binding(1) var<storage, read> weights: array<f32>;  // (HIDDEN, BLOCKS * HIDDEN)
@group(0) @binding(2) var<storage, read> h0: array<f32>;
@group(0) @binding(3) var<storage, read> c0: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;     // (batch, length, HIDDEN)
@group(0) @binding(6) var<storage, read_write> kept: array<f32>;  // (batch, length, KEPT * HIDDEN)
@group(0) @binding(13) var<uniform> dims: Dims;

const WIDE: u32 = BLOCKS * HIDDEN;
var<workgroup> state: array<f32, HIDDEN>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let row = flat_group(group, groups);
    if (row >= dims.batch) { return; }
    for (var j = lid; j < HIDDEN; j += WG) { state[j] = h0[row * HIDDEN + j]; }
    workgroupBarrier();
    for (var t = 0u; t < dims.length; t++) {
        let step = row * dims.length + t;
        for (var j = lid; j < HIDDEN; j += WG) {
            var r: array<f32, 4>;
            var x: array<f32, 4>;
            //@unroll
            for (var b = 0u; b < BLOCKS; b++) {
                r[b] = 0.0;
                x[b] = from_x[step * WIDE + b * HIDDEN + j];
            }
            var k = 0u;
            for (; k + 3u < HIDDEN; k += 4u) {
                //@unroll
                for (var i = 0u; i < 4u; i++) {
                    let h = state[k + i];
                    //@unroll
                    for (var b = 0u; b < BLOCKS; b++) { r[b] += h * weights[(k + i) * WIDE + b * HIDDEN + j]; }
                }
            }
            for (; k < HIDDEN; k++) {
                //@unroll
                for (var b = 0u; b < BLOCKS; b++) { r[b] += state[k] * weights[k * WIDE + b * HIDDEN + j]; }
            }
            if (BIAS) {
                //@unroll
                for (var b = 0u; b < BLOCKS; b++) { r[b] += bias[b * HIDDEN + j]; }
            }
            var c = 0.0;
            if (KEPT == 5u) {
                if (t == 0u) { c = c0[row * HIDDEN + j]; } else { c = kept[((step - 1u) * KEPT + 4u) * HIDDEN + j]; }
            }
            let s = cell(x, r, state[j], c);
            y[step * HIDDEN + j] = s.h;
            //@unroll
            for (var b = 0u; b < KEPT; b++) { kept[(step * KEPT + b) * HIDDEN + j] = s.kept[b]; }
        }
        workgroupBarrier();
        for (var j = lid; j < HIDDEN; j += WG) { state[j] = y[step * HIDDEN + j]; }
        workgroupBarrier();
    }
}
