// The product of `gemm` on matrix units: y[m, n] = cap(residual + apply(x[m, :] . W[n, :] + bias[n])), or
// apply(gate) * up, of rows that `halve_rows` has normed and rounded.
//
// A workgroup computes BM x BN dot products in steps of BK; each of its subgroups WM x WN of them, in fragments of 16 x 16;
// or SLICES subgroups together, which share the steps. Both sides are halves in workgroup memory, k first; 8 more of them
// to a row spread the fragments over banks. The next AHEAD tiles are fetched into registers, weights in their own format,
// before the present ones are used. A gated product has 16 rows of gates and 16 of ups in turn, so that a subgroup holds
// both for the same outputs. With SPLITS > 1 the steps are divided among workgroups that each write partial sums, which
// `join_splits` adds up. Outputs FIRST … FIRST + UNITS are those of this shard.

@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;        // (rows, X_STRIDE / 8): 8 halves each
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;  // (matrices, PARTS * UNITS, PIECES)
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;     // (matrices, PARTS, N4)
@group(0) @binding(6) var<storage, read_write> y: array<vec4<f32>>;  // (rows, N4), or (SPLITS, ROWS, PARTS, N4)
@group(0) @binding(7) var<storage, read> undo: array<f32>;           // of each row of x

const N4: u32 = (N + 3u) / 4u;
const STEPS: u32 = (K + BK - 1u) / BK;
const CHUNK: u32 = (STEPS + SPLITS - 1u) / SPLITS;
const S4: u32 = BK / 4u + 2u;           // vectors of a row of a tile
const B_TILE: u32 = BM * S4;            // where the tile of weights begins
const TILE: u32 = (BM + BN) * S4;
const A_EIGHTS: u32 = BM * BK / 8u;
const A_EACH: u32 = (A_EIGHTS + WG - 1u) / WG;
const ROW_PIECES: u32 = BK / PIECE;     // of a row of a tile
const B_PIECES: u32 = BN * ROW_PIECES;
const B_EACH: u32 = (B_PIECES + WG - 1u) / WG;
const PLANES: u32 = PIECE / 4u;
const WX: u32 = BN / WN;                // subgroups along n
const FM: u32 = WM / 16u;               // fragments of a subgroup
const FN: u32 = WN / 16u;
const OUTS: u32 = FN / PARTS;          // fragments of outputs in a row of them
const ONE_SLICE: u32 = BM / WM * WX;    // subgroups of a slice
const K_EACH: u32 = BK / 16u / SLICES;  // fragments along k for each slice
const WHOLE: bool = STAGED == 0u;       // all sums are staged at once, else those of STAGED subgroups at a time
const AT_ONCE: u32 = max(STAGED, 1u);
const TURNS: u32 = WG / LANES / AT_ONCE;
const SUMS_STRIDE: u32 = BN + 4u;
const OUT4: u32 = BN / PARTS / 4u;      // vectors of outputs in a row of a tile
const WRITES: u32 = (BM * OUT4 + WG - 1u) / WG;
const QUADS: u32 = 64u / LANES;         // vectors of a fragment for each invocation

var<workgroup> tile: array<Halves4, TILE>;
var<workgroup> staged: array<f32, max(STAGED * 256u, (1u - min(STAGED, 1u)) * SLICES * BM * SUMS_STRIDE)>;

struct Fetched {
    a: array<vec4<u32>, A_EACH>,
    w: array<Piece, B_EACH>,
    s: array<vec2<f32>, B_EACH>,
}

// Row of the matrix for column c of a tile.
fn weight_row(c: u32, share: Share) -> u32 {
    let n = share.block * (BN / PARTS) + c / (16u * PARTS) * 16u + c % 16u;
    return (share.matrix * PARTS + c / 16u % PARTS) * UNITS + min(n, UNITS - 1u);
}

// Loads are unconditional and out of range ones clamped, see `gemm`. Rows and columns beyond the end are computed but never
// written; what lies beyond k becomes 0.
fn fetch(step: u32, lid: u32, share: Share) -> Fetched {
    var r: Fetched;
    //@unroll
    for (var t = 0u; t < A_EACH; t++) {
        let v = min(lid + t * WG, A_EIGHTS - 1u);
        let m = min(share.first + v / (BK / 8u), share.end - 1u);
        r.a[t] = x[x_row(m) * (X_STRIDE / 8u) + min(step * (BK / 8u) + v % (BK / 8u), X_STRIDE / 8u - 1u)];
    }
    //@unroll
    for (var t = 0u; t < B_EACH; t++) {
        let v = min(lid + t * WG, B_PIECES - 1u);
        let row = weight_row(v / ROW_PIECES, share);
        let p = min(step * ROW_PIECES + v % ROW_PIECES, PIECES - 1u);
        r.w[t] = load_piece(row, p);
        r.s[t] = piece_scale(row, p);
    }
    return r;
}

fn store(r: Fetched, step: u32, lid: u32) {
    //@unroll
    for (var t = 0u; t < A_EACH; t++) {
        let v = lid + t * WG;
        if (A_EIGHTS % WG == 0u || v < A_EIGHTS) {
            let at = v / (BK / 8u) * S4 + v % (BK / 8u) * 2u;
            tile[at] = halves_of_bits(r.a[t].xy);
            tile[at + 1u] = halves_of_bits(r.a[t].zw);
        }
    }
    //@unroll
    for (var t = 0u; t < B_EACH; t++) {
        let v = lid + t * WG;
        if (B_PIECES % WG == 0u || v < B_PIECES) {
            let at = B_TILE + v / ROW_PIECES * S4 + v % ROW_PIECES * PLANES;
            let inside = PIECES * PIECE % BK == 0u || step * ROW_PIECES + v % ROW_PIECES < PIECES;
            //@unroll
            for (var j = 0u; j < PLANES; j++) {
                let part = tile_part(r.w[t], r.s[t], j);
                tile[at + j] = part;
                if (!inside) { tile[at + j] = halves(vec4<f32>(0.0)); }
            }
        }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let share = share_of(group, count, lid);
    let m0 = share.first;
    if (m0 >= share.end || is_idle(m0, share.end)) { return; }
    let lane = lid % LANES;
    let slice = lid / LANES / ONE_SLICE;
    let own = lid / LANES % ONE_SLICE;
    let a_at = own / WX * WM;
    let b_at = own % WX * WN;
    let first = group.z * CHUNK;
    let last = min(first + CHUNK, STEPS);
    var acc: array<Sums, FM * FN>;
    var next = fetch(first, lid, share);
    var later: Fetched;
    if (AHEAD == 2u) { later = fetch(first + 1u, lid, share); }
    for (var step = first; step < last; step++) {
        store(next, step, lid);
        workgroupBarrier();
        if (AHEAD == 2u) {
            next = later;
            if (step + 2u < last) { later = fetch(step + 2u, lid, share); }
        } else if (step + 1u < last) {
            next = fetch(step + 1u, lid, share);
        }
        //@unroll
        for (var k = 0u; k < K_EACH; k++) {
            var left: array<Left, FM>;
            //@unroll
            for (var i = 0u; i < FM; i++) { left[i] = load_left((a_at + 16u * i) * S4 + 4u * (slice * K_EACH + k), S4); }
            //@unroll
            for (var j = 0u; j < FN; j++) {
                let right = load_right(B_TILE + (b_at + 16u * j) * S4 + 4u * (slice * K_EACH + k), S4);
                //@unroll
                for (var i = 0u; i < FM; i++) {
                    acc[i * FN + j] = multiply_add(left[i], right, acc[i * FN + j], lane);
                }
            }
        }
        workgroupBarrier();
    }
    if (WHOLE) {
        //@unroll
        for (var i = 0u; i < FM; i++) {
            //@unroll
            for (var j = 0u; j < FN; j++) {
                let at = (slice * BM + a_at + 16u * i) * SUMS_STRIDE + b_at + 16u * j;
                store_sums(acc[i * FN + j], at, SUMS_STRIDE, lane);
            }
        }
        workgroupBarrier();
        //@unroll
        for (var t = 0u; t < WRITES; t++) {
            let place = lid + t * WG;
            let row = place / OUT4;
            let at = row * SUMS_STRIDE + place % OUT4 / 4u * 16u * PARTS + place % 4u * 4u;
            if (row < BM) { write(share, row, place % OUT4 * 4u, group.z, sums_at(at), sums_at(at + 16u * (PARTS - 1u))); }
        }
        return;
    }
    //@unroll
    for (var i = 0u; i < FM; i++) {
        //@unroll
        for (var j = 0u; j < OUTS; j++) {
            for (var turn = 0u; turn < TURNS; turn++) {
                var v: array<vec4<f32>, PARTS * QUADS>;
                //@unroll
                for (var p = 0u; p < PARTS; p++) {
                    if (own / AT_ONCE == turn) { store_sums(acc[i * FN + j * PARTS + p], own % AT_ONCE * 256u, 16u, lane); }
                    workgroupBarrier();
                    //@unroll
                    for (var q = 0u; q < QUADS; q++) {
                        v[p * QUADS + q] = sums_at(own % AT_ONCE * 256u + 4u * (lane + q * LANES));
                    }
                    workgroupBarrier();
                }
                if (own / AT_ONCE == turn) {
                    //@unroll
                    for (var q = 0u; q < QUADS; q++) {
                        let place = lane + q * LANES;
                        let n = b_at / PARTS + 16u * j + place % 4u * 4u;
                        write(share, a_at + 16u * i + place / 4u, n, group.z, v[q], v[(PARTS - 1u) * QUADS + q]);
                    }
                }
            }
        }
    }
}

// 4 neighbouring sums, of all slices where the whole tile is staged.
fn sums_at(at: u32) -> vec4<f32> {
    var v = vec4<f32>(0.0);
    //@unroll
    for (var s = 0u; s < SLICES; s++) {
        let i = s * BM * SUMS_STRIDE + at;
        v += vec4<f32>(staged[i], staged[i + 1u], staged[i + 2u], staged[i + 3u]);
    }
    return v;
}

// Write 4 outputs of a tile; out of range ones are left out.
fn write(share: Share, row: u32, column: u32, split: u32, gate: vec4<f32>, up: vec4<f32>) {
    let m = share.first + row;
    let n = share.block * (BN / PARTS) + column;
    if (m >= share.end || n >= UNITS) { return; }
    let n4 = (FIRST + n) / 4u;
    let scale = undo[x_row(m)];
    if (SPLITS == 1u) {
        finish(m, n4, share.matrix, scale * gate, scale * up);
    } else {
        let at = (split * ROWS + m) * PARTS * N4 + n4;
        y[at] = scale * gate;
        if (PARTS == 2u) { y[at + N4] = scale * up; }
    }
}
