// The product of `graph/gemm` on matrix units: both sides are rounded to halves, sums are float32.
//
// A workgroup computes BM x BN dot products in steps of BK; each of its subgroups WM x WN of them, in fragments of 16 x 16.
// A side lies in workgroup memory as it does in memory, so that vectors are copied: rows of the left side are m, or k
// with TRANS_A; those of the right side k, or n with TRANS_B. Loading a fragment turns it. Rows are 8 halves longer, which
// spreads fragments over banks. The next tiles are fetched into registers before the present ones are used. Groups that
// are summed are further steps; with several splits, the steps are shared among workgroups that each write a partial
// product.
struct Dims {
    m: u32, n: u32, k: u32, groups: u32,
    a_groups: u32, b_groups: u32,
    sums: u32,    // groups that are summed in each c[j]
    across: u32,  // tiles along n
    down: u32,    // tiles along m
    chunk: u32,   // steps that a workgroup takes, over all summed groups
    total: u32,   // workgroups
    splits: u32,
}

@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;  // (splits, groups, m, n)
@group(0) @binding(13) var<uniform> dims: Dims;

const A_STRIDE: u32 = A_WIDE + 2u;      // A_WIDE vectors, of 4 halves, to a row of a side
const B_STRIDE: u32 = B_WIDE + 2u;
const B_TILE: u32 = A_ROWS * A_STRIDE;  // where the tile of the right side begins
const TILE: u32 = B_TILE + B_ROWS * B_STRIDE;
const A_COUNT: u32 = A_ROWS * A_WIDE;
const B_COUNT: u32 = B_ROWS * B_WIDE;
const A_EACH: u32 = (A_COUNT + WG - 1u) / WG;
const B_EACH: u32 = (B_COUNT + WG - 1u) / WG;
const WX: u32 = BN / WN;                // subgroups along n
const FM: u32 = WM / 16u;               // fragments of a subgroup
const FN: u32 = WN / 16u;
const TURNS: u32 = WG / LANES / STAGED; // STAGED subgroups write their sums at a time
const SUMS: u32 = 256u / LANES;         // of a fragment for each invocation

var<workgroup> tile: array<Halves4, TILE>;
var<workgroup> staged: array<f32, STAGED * 256u>;

struct Fetched {
    a: array<vec4<f32>, A_EACH>,
    b: array<vec4<f32>, B_EACH>,
}

// Loads are unconditional and out of range ones clamped, see `graph/gemm`. Rows and columns beyond the end are computed but
// never written; what lies beyond k is 0.
fn fetch(step: u32, which: u32, m0: u32, n0: u32, lid: u32) -> Fetched {
    let steps = (dims.k + BK - 1u) / BK;
    let k0 = step % steps * BK;
    let g = which % dims.groups + step / steps * dims.groups;
    let a_start = g % dims.a_groups * dims.m * dims.k;
    let b_start = g % dims.b_groups * right_group();
    var r: Fetched;
    //@unroll
    for (var t = 0u; t < A_EACH; t++) {
        let v = min(lid + t * WG, A_COUNT - 1u);
        let row = v / A_WIDE;
        let place = v % A_WIDE * 4u;
        r.a[t] = left_four(a_start, m0 + select(row, place, TRANS_A), k0 + select(place, row, TRANS_A));
    }
    //@unroll
    for (var t = 0u; t < B_EACH; t++) {
        let v = min(lid + t * WG, B_COUNT - 1u);
        let row = v / B_WIDE;
        let place = v % B_WIDE * 4u;
        r.b[t] = right_four(b_start, k0 + select(row, place, TRANS_B), n0 + select(place, row, TRANS_B));
    }
    return r;
}

fn store(r: Fetched, lid: u32, scale: vec4<f32>) {
    //@unroll
    for (var t = 0u; t < A_EACH; t++) {
        let v = lid + t * WG;
        if (A_COUNT % WG == 0u || v < A_COUNT) { tile[v / A_WIDE * A_STRIDE + v % A_WIDE] = halves(scale.x * r.a[t]); }
    }
    //@unroll
    for (var t = 0u; t < B_EACH; t++) {
        let v = lid + t * WG;
        if (B_COUNT % WG == 0u || v < B_COUNT) {
            tile[B_TILE + v / B_WIDE * B_STRIDE + v % B_WIDE] = halves(scale.y * r.b[t]);
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    if (id >= dims.total) { return; }
    let n0 = id % dims.across * BN;
    let m0 = id / dims.across % dims.down * BM;
    let which = id / (dims.across * dims.down);  // split and group of c
    let row = which % dims.groups * dims.m + m0;
    if (is_idle(row * dims.n, (row + min(BM, dims.m - m0)) * dims.n)) { return; }
    let first = which / dims.groups * dims.chunk;
    let last = min(first + dims.chunk, (dims.k + BK - 1u) / BK * dims.sums);
    let lane = lid % LANES;
    let own = lid / LANES;
    let a_at = own / WX * WM;
    let b_at = own % WX * WN;
    let scale = side_scales();  // of both sides, and what undoes it
    var acc: array<Sums, FM * FN>;
    var next = fetch(first, which, m0, n0, lid);
    //@rounds dims.chunk
    for (var step = first; step < last; step++) {
        store(next, lid, scale);
        workgroupBarrier();
        if (step + 1u < last) { next = fetch(step + 1u, which, m0, n0, lid); }
        //@unroll
        for (var k = 0u; k < BK / 16u; k++) {
            var left: array<Left, FM>;
            //@unroll
            for (var i = 0u; i < FM; i++) { left[i] = left_fragment(a_at + 16u * i, k); }
            //@unroll
            for (var j = 0u; j < FN; j++) {
                let right = right_fragment(b_at + 16u * j, k);
                //@unroll
                for (var i = 0u; i < FM; i++) {
                    acc[i * FN + j] = multiply_add(left[i], right, acc[i * FN + j], lane);
                }
            }
        }
        workgroupBarrier();
    }
    let start = which * dims.m * dims.n;
    //@unroll
    for (var i = 0u; i < FM; i++) {
        //@unroll
        for (var j = 0u; j < FN; j++) {
            for (var turn = 0u; turn < TURNS; turn++) {
                if (own / STAGED == turn) { store_sums(acc[i * FN + j], own % STAGED * 256u, 16u, lane); }
                workgroupBarrier();
                if (own / STAGED == turn) {
                    //@unroll
                    for (var e = 0u; e < SUMS; e++) {
                        let place = lane + e * LANES;  // neighbours write neighbours
                        let m = m0 + a_at + 16u * i + place / 16u;
                        let n = n0 + b_at + 16u * j + place % 16u;
                        if (m < dims.m && n < dims.n) {
                            var v = staged[own % STAGED * 256u + place] * scale.z * scale.w;
                            if (BIAS) { v += bias[select(0u, which % dims.groups * dims.n, BIASES) + n]; }
                            c[start + m * dims.n + n] = apply(v);
                        }
                    }
                }
                workgroupBarrier();
            }
        }
    }
}
