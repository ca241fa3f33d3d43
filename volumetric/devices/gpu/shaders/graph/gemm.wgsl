// c[j] = apply(sum over g = j mod groups of op(a[g mod Ga]) op(b[g mod Gb]) + bias): products of groups of matrices.
//
// A workgroup computes BM x BN dot products in tiles of BK; an invocation TM x TN of them. Either operand may lie
// transposed: only the way in which a tile is fetched differs, which for b is a prelude. In workgroup memory both have
// vectors along m and n, so the inner loop reads vectors only; the elements of a vector are rows, or columns, a quarter of
// the tile apart, so that neighbouring invocations fetch and write neighbours. The next tile is fetched into registers
// before the current one is used. Groups that are summed are further tiles; with several splits, the tiles are shared among
// workgroups that each write a partial product.
struct Dims {
    m: u32, n: u32, k: u32, groups: u32,
    a_groups: u32, b_groups: u32,
    sums: u32,    // groups that are summed in each c[j]
    across: u32,  // tiles along n
    down: u32,    // tiles along m
    chunk: u32,   // tiles of k that a workgroup takes, over all summed groups
    total: u32,   // workgroups
    splits: u32,
}

@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read> bias: array<f32>;
@group(0) @binding(3) var<storage, read_write> c: array<f32>;  // (splits, groups, m, n)
@group(0) @binding(13) var<uniform> dims: Dims;

const LA: u32 = BM / 4u + 1u;  // odd strides spread the transposed writes over banks
const LB: u32 = BN / 4u + 1u;
const TX: u32 = BN / TN;       // invocations along n
const TY: u32 = BM / TM;
const M4: u32 = TM / 4u;       // vectors of an invocation along m
const N4: u32 = TN / 4u;
const A_EACH: u32 = BM * BK / 4u / WG;  // vectors of a tile that each invocation fetches
const B_EACH: u32 = BN * BK / 4u / WG;

var<workgroup> a_tile: array<vec4<f32>, BK * LA>;
var<workgroup> b_tile: array<vec4<f32>, BK * LB>;

// Loads are unconditional and out of range ones clamped: a load behind a branch waits for the one before it. What lies
// beyond k becomes 0; rows and columns beyond the end are computed but never written.
fn fetch_a(t: u32, lid: u32, start: u32, m0: u32, k0: u32) -> vec4<f32> {
    let v = lid + t * WG;
    var r: vec4<f32>;
    let k = k0 + select(v % BK, v / (BM / 4u), TRANS_A);
    let m = m0 + select(v / BK, v % (BM / 4u), TRANS_A);
    let at = min(k, max(dims.k, 1u) - 1u);
    //@unroll
    for (var j = 0u; j < 4u; j++) {
        let row = min(m + j * (BM / 4u), dims.m - 1u);
        r[j] = a[start + select(row * dims.k + at, at * dims.m + row, TRANS_A)];
    }
    return select(vec4<f32>(0.0), r, k < dims.k);
}

fn fetch_b(t: u32, lid: u32, start: u32, n0: u32, k0: u32) -> vec4<f32> {
    let v = lid + t * WG;
    var r: vec4<f32>;
    let k = k0 + select(v / (BN / 4u), v % BK, TRANS_B);
    let n = n0 + select(v % (BN / 4u), v / BK, TRANS_B);
    let at = min(k, max(dims.k, 1u) - 1u);
    //@unroll
    for (var j = 0u; j < 4u; j++) {
        let column = min(n + j * (BN / 4u), dims.n - 1u);
        r[j] = right(start, at, column);
    }
    return select(vec4<f32>(0.0), r, k < dims.k);
}

fn store_a(t: u32, lid: u32, r: vec4<f32>) {
    let v = lid + t * WG;
    a_tile[select(v % BK, v / (BM / 4u), TRANS_A) * LA + select(v / BK, v % (BM / 4u), TRANS_A)] = r;
}

fn store_b(t: u32, lid: u32, r: vec4<f32>) {
    let v = lid + t * WG;
    b_tile[select(v / (BN / 4u), v % BK, TRANS_B) * LB + select(v % (BN / 4u), v / BK, TRANS_B)] = r;
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
    let split = which / dims.groups;
    let row = which % dims.groups * dims.m + m0;
    if (is_idle(row * dims.n, (row + min(BM, dims.m - m0)) * dims.n)) { return; }
    let steps = (dims.k + BK - 1u) / BK;
    let first = split * dims.chunk;
    let last = min(first + dims.chunk, steps * dims.sums);
    let tx = lid % TX;
    let ty = lid / TX;
    var acc: array<vec4<f32>, TM * N4>;
    //@unroll
    for (var i = 0u; i < TM * N4; i++) { acc[i] = vec4<f32>(0.0); }
    var next_a: array<vec4<f32>, A_EACH>;
    var next_b: array<vec4<f32>, B_EACH>;
    //@rounds dims.chunk + 1
    for (var step = first; step < last + 1u; step++) {
        // Round `step` uses the tile that the round before fetched, and fetches its own.
        if (step > first) {
            //@unroll
            for (var t = 0u; t < A_EACH; t++) { store_a(t, lid, next_a[t]); }
            //@unroll
            for (var t = 0u; t < B_EACH; t++) { store_b(t, lid, next_b[t]); }
            workgroupBarrier();
        }
        if (step < last) {
            let g = which % dims.groups + step / steps * dims.groups;
            let a_start = g % dims.a_groups * dims.m * dims.k;
            let b_start = g % dims.b_groups * right_group();
            if (LOOPS) {  // Chromium's software adapter ends while it compiles all gathers of a convolution written out
                for (var t = 0u; t < A_EACH; t++) { next_a[t] = fetch_a(t, lid, a_start, m0, step % steps * BK); }
                for (var t = 0u; t < B_EACH; t++) { next_b[t] = fetch_b(t, lid, b_start, n0, step % steps * BK); }
            } else {
                //@unroll
                for (var t = 0u; t < A_EACH; t++) { next_a[t] = fetch_a(t, lid, a_start, m0, step % steps * BK); }
                //@unroll
                for (var t = 0u; t < B_EACH; t++) { next_b[t] = fetch_b(t, lid, b_start, n0, step % steps * BK); }
            }
        }
        if (step > first) {
            for (var ks = 0u; ks < BK; ks += KU) {
                //@unroll
                for (var ku = 0u; ku < KU; ku++) {
                    var right: array<vec4<f32>, N4>;
                    //@unroll
                    for (var j = 0u; j < N4; j++) { right[j] = b_tile[(ks + ku) * LB + j * TX + tx]; }
                    //@unroll
                    for (var i = 0u; i < M4; i++) {
                        let left = a_tile[(ks + ku) * LA + i * TY + ty];
                        //@unroll
                        for (var e = 0u; e < 4u; e++) {
                            //@unroll
                            for (var j = 0u; j < N4; j++) {
                                acc[(4u * i + e) * N4 + j] =
                                    fma(vec4<f32>(left[e]), right[j], acc[(4u * i + e) * N4 + j]);
                            }
                        }
                    }
                }
            }
            workgroupBarrier();
        }
    }
    let start = which * dims.m * dims.n;
    //@unroll
    for (var i = 0u; i < M4; i++) {
        //@unroll
        for (var e = 0u; e < 4u; e++) {
            let m = m0 + i * TY + ty + e * (BM / 4u);
            //@unroll
            for (var j = 0u; j < N4; j++) {
                                //@unroll
                for (var f = 0u; f < 4u; f++) {
                    let n = n0 + j * TX + tx + f * (BN / 4u);
                    if (m < dims.m && n < dims.n) {
                        var v = acc[(4u * i + e) * N4 + j][f];
                        if (BIAS) { v += bias[select(0u, which % dims.groups * dims.n, BIASES) + n]; }
                        c[start + m * dims.n + n] = apply(v);
                    }
                }
            }
        }
    }
}
