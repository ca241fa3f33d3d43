// Prefill attention with an online softmax (Milakov and Gimelshein 2018, arXiv 1805.02867), one pass over the cache.
// A workgroup computes a block of up to BQ rows of one piece and head against tiles of BK positions, each within a page.
// K and then V of a tile share one place in workgroup memory; each is fetched into registers while the other is used. Invocations form TY x TX; each owns RQ rows of
// the scores and of the output.
@group(0) @binding(0) var<storage, read> q: array<vec4<f32>>;       // (rows, HEADS, HD4), scaled
@group(0) @binding(1) var<storage, read> keys: array<Cached>;       // (pages, KV_HEADS, PAGE, HD4)
@group(0) @binding(2) var<storage, read> values: array<Cached>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;       // (rows, Y_STRIDE)
@group(0) @binding(4) var<storage, read> head_params: array<f32>;   // (SINKS_AT and) a sink for each head

const HD4: u32 = (HEAD_DIM + 3u) / 4u;
const ROW: u32 = HD4 | 1u;      // an odd stride spreads rows over the banks
const TY: u32 = WG / TX;
const RQ: u32 = BQ / TY;
const CK: u32 = BK / TX;
const OV: u32 = (HD4 + TX - 1u) / TX;
const QN: u32 = WG / BQ;        // invocations that share the softmax of a row
const S_ROW: u32 = BK + 1u;
const LOADS: u32 = (BK * HD4 + WG - 1u) / WG;  // vectors of a tile for each invocation

var<workgroup> q_tile: array<vec4<f32>, BQ * ROW>;
var<workgroup> kv_tile: array<vec4<f32>, BK * ROW>;
var<workgroup> scores: array<f32, BQ * S_ROW>;
var<workgroup> shared_part: array<f32, WG>;
var<workgroup> row_factor: array<f32, BQ>;

alias Tile = array<Cached, LOADS>;

// Start of the tile at `base` of a sequence in the cache, and its last existing row, which rows beyond repeat. Both
// tile and page begin at multiples of BK; without a state there is one page, in which the sequence begins at row
// `first`.
fn place_tile(line: u32, head: u32, base: u32, total: u32, first: u32) -> vec2<u32> {
    let at = min(base, total - 1u) / BK * BK;
    return vec2<u32>(cell(page_of(line, at), head, first + at), total - 1u - at);
}

fn fetch_keys(lid: u32, tile: vec2<u32>) -> Tile {
    var r: Tile;
    //@unroll
    for (var t = 0u; t < LOADS; t++) {
        let i = min(lid + t * WG, BK * HD4 - 1u);
        r[t] = keys[(tile.x + min(i / HD4, tile.y)) * HD4 + i % HD4];
    }
    return r;
}

fn fetch_values(lid: u32, tile: vec2<u32>) -> Tile {
    var r: Tile;
    //@unroll
    for (var t = 0u; t < LOADS; t++) {
        let i = min(lid + t * WG, BK * HD4 - 1u);
        r[t] = values[(tile.x + min(i / HD4, tile.y)) * HD4 + i % HD4];
    }
    return r;
}

fn store_tile(lid: u32, r: Tile) {
    //@unroll
    for (var t = 0u; t < LOADS; t++) {
        let i = lid + t * WG;
        if (i < BK * HD4) { kv_tile[i / HD4 * ROW + i % HD4] = from_cache(r[t]); }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let h = group.x;
    let kv = h / (HEADS / KV_HEADS);
    let start = block_start(count.y - 1u - group.y, BQ);  // later rows see more and start first
    let m0 = start.x;
    let place = row_place(m0);
    let last = place.z;                                // end row of the piece
    let own = select(start.y, 0u, HAS_STATE);          // its first row in the cache
    let at0 = select(m0 - start.y, place.x, HAS_STATE);  // position of row m0
    let total = at0 + last - m0;
    let tx = lid % TX;
    let ty = lid / TX;
    let stat_row = lid / QN;
    let stat_part = lid % QN;

    for (var i = lid; i < BQ * HD4; i += WG) {
        let m = min(m0 + i / HD4, last - 1u);
        q_tile[i / HD4 * ROW + i % HD4] = q[(m * HEADS + h) * HD4 + i % HD4];
    }
    var acc: array<vec4<f32>, RQ * OV>;
    //@unroll
    for (var i = 0u; i < RQ * OV; i++) { acc[i] = vec4<f32>(0.0); }
    var top = LOWEST;   // of row stat_row
    var sum = 0.0;      // this invocation's share of it
    var first = 0u;
    var end = total;
    if (CAUSAL) { end = min(total, at0 + BQ); }
    if (!CAUSAL && WINDOW > 0u) { end = min(total, at0 + BQ - 1u + WINDOW); }
    if (WINDOW > 0u) { first = (max(at0 + 1u, WINDOW) - WINDOW) / BK * BK; }

    if (CHUNK > 0u) { first = max(first, (at0 - at0 % max(CHUNK, 1u)) / BK * BK); }

    var tile = place_tile(place.y, kv, first, total, own);
    var held = fetch_keys(lid, tile);
    //@rounds CONTEXT / BK + 2
    for (var base = first; base < end; base += BK) {
        store_tile(lid, held);
        workgroupBarrier();
        held = fetch_values(lid, tile);
        var s: array<f32, RQ * CK>;
        //@unroll
        for (var i = 0u; i < RQ * CK; i++) { s[i] = 0.0; }
        for (var d0 = 0u; d0 < HD4; d0 += DU) {
            //@unroll
            for (var du = 0u; du < DU; du++) {
                let d = d0 + du;
                var k: array<vec4<f32>, CK>;
                //@unroll
                for (var c = 0u; c < CK; c++) { k[c] = kv_tile[(c * TX + tx) * ROW + d]; }
                //@unroll
                for (var r = 0u; r < RQ; r++) {
                    let a = q_tile[(r * TY + ty) * ROW + d];
                    //@unroll
                    for (var c = 0u; c < CK; c++) { s[r * CK + c] += dot(a, k[c]); }
                }
            }
        }
        //@unroll
        for (var r = 0u; r < RQ; r++) {
            let at = at0 + r * TY + ty;
            //@unroll
            for (var c = 0u; c < CK; c++) {
                let j = base + c * TX + tx;
                var v = s[r * CK + c];
                if (SOFTCAP > 0.0) { v = soft_cap(v, SOFTCAP); }
                let outside = WINDOW > 0u && (j + WINDOW <= at || j >= at + WINDOW);
                let before = CHUNK > 0u && j < at - at % max(CHUNK, 1u);
                let hidden = j >= end || (CAUSAL && j > at) || outside || before;
                scores[(r * TY + ty) * S_ROW + c * TX + tx] = select(v, LOWEST, hidden);
            }
        }
        workgroupBarrier();
        var tile_top = LOWEST;
        for (var j = stat_part; j < BK; j += QN) { tile_top = max(tile_top, scores[stat_row * S_ROW + j]); }
        shared_part[lid] = tile_top;
        store_tile(lid, held);
        workgroupBarrier();
        tile = place_tile(place.y, kv, base + BK, total, own);
        held = fetch_keys(lid, tile);
        var new_top = top;
        for (var i = 0u; i < QN; i++) { new_top = max(new_top, shared_part[stat_row * QN + i]); }
        let shrink = decay(top - new_top);
        top = new_top;
        sum *= shrink;
        for (var j = stat_part; j < BK; j += QN) {
            let v = scores[stat_row * S_ROW + j];
            let p = attention_weight(v, top);
            sum += p;
            scores[stat_row * S_ROW + j] = p;
        }
        if (stat_part == 0u) { row_factor[stat_row] = shrink; }
        workgroupBarrier();
        //@unroll
        for (var r = 0u; r < RQ; r++) {
            let f = row_factor[r * TY + ty];
            //@unroll
            for (var o = 0u; o < OV; o++) { acc[r * OV + o] *= f; }
        }
        for (var j0 = 0u; j0 < BK; j0 += JU) {
            //@unroll
            for (var ju = 0u; ju < JU; ju++) {
                let j = j0 + ju;
                var v: array<vec4<f32>, OV>;
                //@unroll
                for (var o = 0u; o < OV; o++) { v[o] = kv_tile[j * ROW + min(o * TX + tx, HD4 - 1u)]; }
                //@unroll
                for (var r = 0u; r < RQ; r++) {
                    let p = scores[(r * TY + ty) * S_ROW + j];
                    //@unroll
                    for (var o = 0u; o < OV; o++) { acc[r * OV + o] = fma(vec4<f32>(p), v[o], acc[r * OV + o]); }
                }
            }
        }
        workgroupBarrier();
    }
    shared_part[lid] = sum;
    workgroupBarrier();
    if (stat_part == 0u) {
        var l = 0.0;
        for (var i = 0u; i < QN; i++) { l += shared_part[stat_row * QN + i]; }
        var shrunk = 1.0;
        if (SINKS) {
            let sink = head_params[SINKS_AT + h];
            let high = max(top, sink);
            shrunk = decay(top - high);
            l = l * shrunk + decay(sink - high);
        }
        row_factor[stat_row] = shrunk / max(l, SMALLEST_NORMAL);
    }
    workgroupBarrier();
    //@unroll
    for (var r = 0u; r < RQ; r++) {
        let m = m0 + r * TY + ty;
        let f = row_factor[r * TY + ty];
        //@unroll
        for (var o = 0u; o < OV; o++) {
            let v = f * acc[r * OV + o];
            let d = 4u * (o * TX + tx);
            let at = m * Y_STRIDE + h * HEAD_DIM + d;
            if (m < last) {
                if (d < HEAD_DIM) { y[at] = v.x; }
                if (d + 1u < HEAD_DIM) { y[at + 1u] = v.y; }
                if (d + 2u < HEAD_DIM) { y[at + 2u] = v.z; }
                if (d + 3u < HEAD_DIM) { y[at + 3u] = v.w; }
            }
        }
    }
}
