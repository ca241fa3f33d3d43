// The selective scan of `layers.selective_scan` over the rows of a piece. A workgroup has CH channels; PARTS invocations share
// the elements of a channel's state, EACH of them in registers. ROWS rows at a time: the steps of all channels into workgroup
// memory, then all elements, then the sums over them.
@group(0) @binding(0) var<storage, read> x: array<f32>;            // (rows, X_STRIDE), and so on
@group(0) @binding(1) var<storage, read> dt: array<f32>;
@group(0) @binding(2) var<storage, read> b: array<f32>;
@group(0) @binding(3) var<storage, read> c: array<f32>;
@group(0) @binding(4) var<storage, read> z: array<f32>;
@group(0) @binding(5) var<storage, read> params: array<f32>;       // a_log, then skip, then bias
@group(0) @binding(6) var<storage, read_write> state: array<f32>;  // (lines, RING, HELD)
@group(0) @binding(7) var<storage, read_write> y: array<f32>;      // (rows, STRIDE)

const INNER: u32 = HEADS * HEAD_DIM;
const STRIDE: u32 = (INNER + 3u) / 4u * 4u;
const HELD: u32 = (SIZE * INNER + 3u) / 4u * 4u;
const CH: u32 = WG / PARTS;
const EACH: u32 = (SIZE + PARTS - 1u) / PARTS;
const TILE: u32 = ROWS * CH;
var<workgroup> steps: array<f32, TILE>;
var<workgroup> decays: array<f32, TILE>;  // where a head has one
var<workgroup> sums: array<f32, TILE * PARTS>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    if (group.y >= ctl.pieces) { return; }
    let place = ctl.places[group.y];
    let start = place.w;
    let end = place.z;
    let base = group.x * CH;
    let channel = min(base + lid % CH, INNER - 1u);
    let part = lid / CH;
    let own = base + lid % CH < INNER;
    let of_group = channel / HEAD_DIM / (HEADS / GROUPS) * SIZE;
    let before = (place.y * RING + place.x % RING) * HELD + channel;
    var h: array<f32, EACH>;
    var rate: array<f32, EACH>;
    //@unroll
    for (var e = 0u; e < EACH; e++) {
        let n = min(part * EACH + e, SIZE - 1u);
        h[e] = 0.0;
        if (place.x > 0u) { h[e] = state[before + n * INNER]; }
        rate[e] = 0.0;
        if (OF_ELEMENT) { rate[e] = -exponential(params[channel * SIZE + n]); }
    }
    //@rounds MOST / ROWS + 1
    for (var first = start; first < end; first += ROWS) {
        let count = min(ROWS, end - first);
        for (var i = lid; i < TILE; i += WG) {
            let row = min(first + i / CH, end - 1u);
            let head = min(base + i % CH, INNER - 1u) / HEAD_DIM;
            var pre = DT_FACTOR * dt[row * DT_STRIDE + DT_START + head];
            if (HAS_BIAS) { pre += params[BIAS_AT + head]; }
            let step = bounded(apply(pre));
            steps[i] = step;
            if (!OF_ELEMENT) { decays[i] = exponential(-exponential(params[head]) * step); }
        }
        workgroupBarrier();
        //@rounds ROWS
        for (var r = 0u; r < count; r++) {
            let row = first + r;
            let at = r * CH + lid % CH;
            let step = steps[at];
            let taken = step * x[row * X_STRIDE + X_START + channel];
            var decay = 0.0;
            if (!OF_ELEMENT) { decay = decays[at]; }
            var sum = 0.0;
            //@unroll
            for (var e = 0u; e < EACH; e++) {
                let n = part * EACH + e;
                if (n < SIZE) {
                    if (OF_ELEMENT) { decay = exponential(rate[e] * step); }
                    h[e] = decay * h[e] + taken * b[row * B_STRIDE + B_START + of_group + n];
                    sum += h[e] * c[row * C_STRIDE + C_START + of_group + n];
                }
            }
            sums[at * PARTS + part] = sum;
        }
        workgroupBarrier();
        for (var i = lid; i < TILE; i += WG) {
            let row = first + i / CH;
            let at = base + i % CH;
            if (row < end && at < INNER) {
                var sum = params[SKIP_AT + at / HEAD_DIM] * x[row * X_STRIDE + X_START + at];
                for (var p = 0u; p < PARTS; p++) { sum += sums[i * PARTS + p]; }
                if (GATED) {
                    let gate = Z_FACTOR * z[row * Z_STRIDE + Z_START + at];
                    sum *= gate * logistic(gate);
                }
                y[row * STRIDE + at] = sum;
            }
        }
    }
    let after = (place.y * RING + (place.x + end - start) % RING) * HELD + channel;
    //@unroll
    for (var e = 0u; e < EACH; e++) {
        let n = part * EACH + e;
        if (own && n < SIZE) { state[after + n * INNER] = h[e]; }
    }
}

// Comparisons leave NaN as it is.
fn bounded(step: f32) -> f32 {
    let low = select(step, DT_MIN, step < DT_MIN);
    return select(low, DT_MAX, BOUNDED && low > DT_MAX);
}
