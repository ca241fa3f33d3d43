// y[m, n] = cap(residual + apply(norm(x)[m, :] . W[n, :] + bias[n])), or apply(gate) * up, for many rows.
//
// A workgroup computes BM x BN dot products in tiles of BK: both operands are transposed on their way into workgroup
// memory, so that each step of the unrolled inner loop reads vectors along m and n only. The next tile is fetched into
// registers before the current one is used, and with BUFFERS = 2 stored beside it, which saves a barrier a tile. A gated
// product puts gate rows in the first half of the BN columns and up rows in the second; each invocation then holds both
// for the same outputs. Where a matrix has few tiles, SLICES groups of invocations each take a part of every BK and are
// summed at the end: more invocations hide latency without smaller tiles, which would read more for each product.
// Outputs FIRST … FIRST + UNITS are those of this shard.

@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;            // (rows, K4)
@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;      // (matrices, PARTS * UNITS, PIECES)
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<vec4<f32>>;         // (matrices, PARTS, N4)
@group(0) @binding(4) var<storage, read> norm_params: array<vec4<f32>>;  // gain (K4), then bias (K4)
@group(0) @binding(6) var<storage, read_write> y: array<vec4<f32>>;      // (rows, N4)
@group(0) @binding(7) var<storage, read> stats: array<vec4<f32>>;        // of each row, by row_stats

const K4: u32 = (K + 3u) / 4u;
const N4: u32 = (N + 3u) / 4u;
const KB: u32 = BK / 4u;             // 4 x 4 blocks along k in a tile
const A_BLOCKS: u32 = BM / 4u * KB;
const BLOCKS: u32 = (A_BLOCKS + BN / 4u * KB) / WG;  // of both tiles, for each invocation
const LA: u32 = BM / 4u + 1u;        // odd strides spread the transposed writes over banks
const LB: u32 = BN / 4u + 1u;
const TX: u32 = BN / 8u;             // invocations along n; each has two vectors of 4 columns
const TY: u32 = BM / 4u / TM4;
const PX: u32 = min(TX, 8u);
const PY: u32 = min(TY, 32u / PX);
const OUT: u32 = BN / PARTS;         // outputs of a tile
const TILE: u32 = BK * (LA + LB);    // vectors of both tiles; the one of weights is second
const B_TILE: u32 = BK * LA;

alias Block = array<vec4<f32>, 4>;

var<workgroup> tile: array<vec4<f32>, max(BUFFERS * TILE, SLICES / 2u * BM * BN / 4u)>;

// Loads are unconditional and out of range ones clamped: a load behind a branch waits for the one before it, and a tile
// would cost the memory latency eight times. Rows and columns beyond the end are computed but never written.
fn fetch_a(block: u32, share: Share, k0: u32) -> Block {
    let k4 = k0 + block % KB;
    let at = min(k4, K4 - 1u);
    var r: Block;
    //@unroll
    for (var j = 0u; j < 4u; j++) { r[j] = x[x_row(min(share.first + 4u * (block / KB) + j, share.end - 1u)) * K4 + at]; }
    if (NORM != 0u) {
        var s: array<vec4<f32>, 4>;
        //@unroll
        for (var j = 0u; j < 4u; j++) { s[j] = stats[x_row(min(share.first + 4u * (block / KB) + j, share.end - 1u))]; }
        var gain = vec4<f32>(1.0);
        var shift = vec4<f32>(0.0);
        if (HAS_NORM_WEIGHT) { gain = norm_params[at] + NORM_UNIT; }
        if (HAS_NORM_BIAS) { shift = norm_params[K4 + at]; }
        //@unroll
        for (var j = 0u; j < 4u; j++) { r[j] = ((r[j] - s[j].x) - s[j].z) * s[j].y * gain + shift; }
    }
    if (K % BK != 0u) {
        //@unroll
        for (var j = 0u; j < 4u; j++) { r[j] = mask4(r[j], k4, K); }
    }
    return r;
}

fn fetch_b(block: u32, share: Share, n0: u32, k0: u32) -> Block {
    let k4 = k0 + block % KB;
    let c = 4u * (block / KB);
    var r: Block;
    //@unroll
    for (var j = 0u; j < 4u; j++) {
        let n = min(n0 + (c + j) % OUT, UNITS - 1u);
        r[j] = w_load4((share.matrix * PARTS + (c + j) / OUT) * UNITS + n, min(k4, K4 - 1u));
    }
    if (K % BK != 0u) {
        //@unroll
        for (var j = 0u; j < 4u; j++) { r[j] = select(vec4<f32>(0.0), r[j], k4 < K4); }
    }
    return r;
}

// Whether block t of an invocation belongs to the tile of x; folds to a constant where the tile is whole rounds of blocks.
fn is_a(t: u32, lid: u32) -> bool {
    if (A_BLOCKS % WG == 0u) { return t < A_BLOCKS / WG; }
    return lid + t * WG < A_BLOCKS;
}

fn fetch(t: u32, lid: u32, share: Share, n0: u32, k0: u32) -> Block {
    if (is_a(t, lid)) { return fetch_a(lid + t * WG, share, k0); }
    return fetch_b(lid + t * WG - A_BLOCKS, share, n0, k0);
}

fn store(t: u32, lid: u32, base: u32, r: Block) {
    let block = lid + t * WG;
    //@unroll
    for (var j = 0u; j < 4u; j++) {
        let column = vec4<f32>(r[0][j], r[1][j], r[2][j], r[3][j]);
        if (is_a(t, lid)) {
            tile[base + (4u * (block % KB) + j) * LA + block / KB] = column;
        } else {
            let b = block - A_BLOCKS;
            tile[base + B_TILE + (4u * (b % KB) + j) * LB + b / KB] = column;
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
    let n0 = share.block * OUT;
    let slice = lid / (TX * TY);
    let place = lid % (TX * TY);
    // Neighbours form blocks of PX x PY: 32 of them then read the fewest different vectors at once.
    let tx = place % PX + place / (PX * PY) % (TX / PX) * PX;
    let ty = place / PX % PY + place / (PY * TX) * PY;
    var acc: array<vec4<f32>, 8u * TM4>;
    //@unroll
    for (var i = 0u; i < 8u * TM4; i++) { acc[i] = vec4<f32>(0.0); }
    var next: array<Block, BLOCKS>;
    //@unroll
    for (var t = 0u; t < BLOCKS; t++) { next[t] = fetch(t, lid, share, n0, 0u); }
    var base = 0u;
    for (var k0 = 0u; k0 < K4; k0 += KB) {
        //@unroll
        for (var t = 0u; t < BLOCKS; t++) { store(t, lid, base, next[t]); }
        workgroupBarrier();
        if (k0 + KB < K4) {
            //@unroll
            for (var t = 0u; t < BLOCKS; t++) { next[t] = fetch(t, lid, share, n0, k0 + KB); }
        }
        for (var ks = 0u; ks < BK / SLICES; ks += KU) {
            let a_at = base + (slice * (BK / SLICES) + ks) * LA + ty;
            let b_at = base + B_TILE + (slice * (BK / SLICES) + ks) * LB + tx;
            //@unroll
            for (var ku = 0u; ku < KU; ku++) {
                let b0 = tile[b_at + ku * LB];
                let b1 = tile[b_at + ku * LB + TX];
                //@unroll
                for (var i = 0u; i < TM4; i++) {
                    let a = tile[a_at + ku * LA + i * TY];
                    //@unroll
                    for (var c = 0u; c < 4u; c++) {
                        acc[(4u * i + c) * 2u] = fma(vec4<f32>(a[c]), b0, acc[(4u * i + c) * 2u]);
                        acc[(4u * i + c) * 2u + 1u] = fma(vec4<f32>(a[c]), b1, acc[(4u * i + c) * 2u + 1u]);
                    }
                }
            }
        }
        if (BUFFERS == 2u) { base = TILE - base; } else { workgroupBarrier(); }
    }
    for (var step = SLICES / 2u; step > 0u; step = step / 2u) {
        workgroupBarrier();
        if (slice >= step && slice < 2u * step) {
            //@unroll
            for (var i = 0u; i < 8u * TM4; i++) { tile[((slice - step) * 8u * TM4 + i) * TX * TY + place] = acc[i]; }
        }
        workgroupBarrier();
        if (slice < step) {
            //@unroll
            for (var i = 0u; i < 8u * TM4; i++) { acc[i] += tile[(slice * 8u * TM4 + i) * TX * TY + place]; }
        }
    }
    if (slice > 0u) { return; }
    let last = FIRST + UNITS;
    //@unroll
    for (var i = 0u; i < TM4; i++) {
        //@unroll
        for (var c = 0u; c < 4u; c++) {
            let m = m0 + 4u * (i * TY + ty) + c;
            let n = FIRST + n0 + 4u * tx;
            let first = acc[(4u * i + c) * 2u];
            let second = acc[(4u * i + c) * 2u + 1u];
            if (m < share.end) {
                if (n < last) { finish(m, n / 4u, share.matrix, first, second); }
                if (PARTS == 1u && n + 4u * TX < last) { finish(m, n / 4u + TX, share.matrix, second, second); }
            }
        }
    }
}
