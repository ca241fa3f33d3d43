// Attention of prompts on matrix units: what `attend_rows` computes, of halves with sums in float32. The softmax is online, with
// a maximum that follows the scores only when they outgrow it (see MARGIN).
//
// A workgroup computes scores and output of BM rows of a sequence in one query head, against tiles of BK positions. A
// subgroup owns FM fragments of 16 of these rows and one of WX parts of the positions, then of the elements of the head. K
// and then V of a tile share one place in workgroup memory; each is fetched into registers while the other is used. Scores
// go through `staged` to QN neighbouring invocations for each row, which write weights as halves.
@group(0) @binding(0) var<storage, read> q: array<vec2<u32>>;       // (rows, HEADS, HD4): 4 halves each, of `attend_append`
@group(0) @binding(1) var<storage, read> keys: array<Cached>;       // (pages, KV_HEADS, PAGE, HD4)
@group(0) @binding(2) var<storage, read> values: array<Cached>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>; // (rows, HEADS, HD4)
@group(0) @binding(4) var<storage, read> head_params: array<f32>;   // (SINKS_AT and) a sink for each head
@group(0) @binding(5) var<storage, read> undo: array<f32>;          // (rows, HEADS): what products of q are multiplied by

const HD4: u32 = HEAD_DIM / 4u;
const FD: u32 = (HEAD_DIM + 15u) / 16u;      // fragments of a head
const FO: u32 = (FD + WX - 1u) / WX;         // those of the output that a subgroup owns of a row
const FS: u32 = BK / 16u / WX;               // and of the scores
const FK: u32 = BK / 16u;
const S4: u32 = 4u * FO * WX + 2u;           // vectors of a row of q, k or v: 8 more halves spread fragments over banks
const P4: u32 = BK / 4u + 2u;                // of a row of weights
const KV_AT: u32 = (1u - HOLD) * BM * S4;    // q held in registers leaves its place to k and v
const P_AT: u32 = KV_AT + BK * S4;
const TILE: u32 = max(P_AT + BM * P4, BM * S4);
const QN: u32 = max(4u, 2u * WX / FM);       // invocations that share the softmax of a row
const RL: u32 = BM * QN / WG;                // rows of each
const QC: u32 = BK / 4u / QN;                // vectors of a row of each
const TEAMS: u32 = WG / LANES;
const QUADS: u32 = 64u / LANES;              // vectors of a fragment for each invocation
const OWN: u32 = FM * FS;                    // fragments of a subgroup in `staged`
const TURNS: u32 = (FM * FO + OWN - 1u) / OWN;
const LOADS: u32 = (BK * 4u * FD + WG - 1u) / WG;    // vectors of a tile for each invocation
const Q_LOADS: u32 = (BM * 4u * FD + WG - 1u) / WG;  // and of its queries
const ALIGN: u32 = min(BK, PAGE);
const LOG2_E: f32 = 1.4426950408889634;
// A weight is 2^(score - top). `top` becomes the maximum of a row once that exceeds it by so much, and only then is the
// output so far rescaled; weights up to 2^MARGIN are as exact in halves as weights up to 1.
const MARGIN: f32 = 8.0;

var<workgroup> tile: array<Halves4, TILE>;
var<workgroup> staged: array<f32, BM * BK>;
var<workgroup> row_factor: array<f32, BM>;
var<workgroup> outgrown: array<u32, TEAMS>;

alias Tile = array<Cached, LOADS>;
alias Cells = array<u32, SLOTS>;

// Row in the cache of the first position of each page of a tile at `base`, which begins at a multiple of ALIGN. Without a
// state there is one page, in which the sequence begins at row `own`.
fn place_tile(line: u32, head: u32, base: u32, total: u32, own: u32) -> Cells {
    var r: Cells;
    if (!HAS_STATE) {
        r[0] = head * PAGE + own + base;
        return r;
    }
    //@unroll
    for (var s = 0u; s < SLOTS; s++) {
        let at = min(base + s * PAGE, total - 1u);
        r[s] = cell(page_of(line, at), head, 0u) + at % PAGE / ALIGN * ALIGN;
    }
    return r;
}

// Row in the cache of position base + i; positions beyond `more`, the last of the tile, repeat that one, because others may
// hold NaN.
fn tile_row(cells: Cells, i: u32, more: u32) -> u32 {
    let at = min(i, more);
    var start = cells[0];
    //@unroll
    for (var s = 1u; s < SLOTS; s++) { if (at >= s * PAGE) { start = cells[s] - s * PAGE; } }
    return start + at;
}

// Row and column of vector t that this invocation moves. Where rows divide the workgroup its column stays the same, and
// compilers see that addresses differ by constants.
fn line_of(lid: u32, t: u32) -> u32 {
    if (WG % (4u * FD) == 0u) { return lid / (4u * FD) + t * (WG / (4u * FD)); }
    return (lid + t * WG) / (4u * FD);
}

fn column_of(lid: u32, t: u32) -> u32 {
    if (WG % (4u * FD) == 0u) { return lid % (4u * FD); }
    return (lid + t * WG) % (4u * FD);
}

fn fetch_keys(lid: u32, cells: Cells, more: u32) -> Tile {
    var r: Tile;
    //@unroll
    for (var t = 0u; t < LOADS; t++) {
        r[t] = keys[tile_row(cells, line_of(lid, t), more) * HD4 + min(column_of(lid, t), HD4 - 1u)];
    }
    return r;
}

fn fetch_values(lid: u32, cells: Cells, more: u32) -> Tile {
    var r: Tile;
    //@unroll
    for (var t = 0u; t < LOADS; t++) {
        r[t] = values[tile_row(cells, line_of(lid, t), more) * HD4 + min(column_of(lid, t), HD4 - 1u)];
    }
    return r;
}

// Elements beyond the end of a head become 0.
fn store_tile(lid: u32, r: Tile) {
    //@unroll
    for (var t = 0u; t < LOADS; t++) {
        if (BK * 4u * FD % WG == 0u || lid + t * WG < BK * 4u * FD) {
            let at = KV_AT + line_of(lid, t) * S4 + column_of(lid, t);
            tile[at] = cached_halves(r[t]);
            if (HD4 < 4u * FD && column_of(lid, t) >= HD4) { tile[at] = halves(vec4<f32>(0.0)); }
        }
    }
}

// 2^x for x <= MARGIN, to a few units in the last place of a float; halves keep 11 bits of it.
fn two_to(x: f32) -> f32 {
    if (NATIVE) { return exp2(x); }
    return decay(x * 0.6931471805599453);
}

// Scores of positions j … j + 3 for a query at `at`, LOWEST where it may not see them.
fn visible(scores: vec4<f32>, j: u32, at: u32, end: u32) -> vec4<f32> {
    let js = vec4<u32>(j) + vec4<u32>(0u, 1u, 2u, 3u);
    var hidden = js >= vec4<u32>(end);
    if (CAUSAL) { hidden = hidden | (js > vec4<u32>(at)); }
    if (WINDOW > 0u) { hidden = hidden | (js + WINDOW <= vec4<u32>(at)) | (js >= vec4<u32>(at + WINDOW)); }
    if (CHUNK > 0u) { hidden = hidden | (js < vec4<u32>(at - at % max(CHUNK, 1u))); }
    return select(scores, vec4<f32>(LOWEST), hidden);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let head = group.x;
    let kv = head / (HEADS / KV_HEADS);
    let start = block_start(count.y - 1u - group.y, BM);  // later rows see more and start first
    let m0 = start.x;
    let place = row_place(m0);
    let last = place.z;                                  // end row of the sequence's rows
    let own_row = select(start.y, 0u, HAS_STATE);        // its first row in the cache
    let at0 = select(m0 - start.y, place.x, HAS_STATE);  // position of row m0
    let total = at0 + last - m0;
    let lane = lid % LANES;
    let own = lid / LANES;
    let wx = own % WX;
    let f0 = own / WX * FM;                              // first fragment of its rows

    var first = 0u;
    var end = total;
    if (CAUSAL) { end = min(total, at0 + BM); }
    if (!CAUSAL && WINDOW > 0u) { end = min(total, at0 + BM - 1u + WINDOW); }
    if (WINDOW > 0u) { first = (max(at0 + 1u, WINDOW) - WINDOW) / ALIGN * ALIGN; }
    if (CHUNK > 0u) { first = max(first, (at0 - at0 % max(CHUNK, 1u)) / ALIGN * ALIGN); }

    var cells = place_tile(place.y, kv, first, total, own_row);
    var fetched = fetch_keys(lid, cells, min(total - 1u - first, BK - 1u));
    var asked: array<vec2<u32>, Q_LOADS>;
    //@unroll
    for (var t = 0u; t < Q_LOADS; t++) {
        let r = min(line_of(lid, t), BM - 1u);
        let m = min(m0 + r, last - 1u);
        asked[t] = q[(m * HEADS + head) * HD4 + min(column_of(lid, t), HD4 - 1u)];
    }
    //@unroll
    for (var t = 0u; t < Q_LOADS; t++) {
        if (BM * 4u * FD % WG == 0u || lid + t * WG < BM * 4u * FD) {
            let bits = select(vec2<u32>(0u), asked[t], column_of(lid, t) < HD4);
            tile[line_of(lid, t) * S4 + column_of(lid, t)] = halves_of_bits(bits);
        }
    }
    var query: array<Left, FM * FD>;
    if (HOLD == 1u) {
        workgroupBarrier();
        //@unroll
        for (var i = 0u; i < FM; i++) {
            //@unroll
            for (var k = 0u; k < FD; k++) { query[i * FD + k] = load_left((f0 + i) * 16u * S4 + 4u * k, S4); }
        }
        workgroupBarrier();
    }

    var acc: array<Sums, FM * FO>;
    var scale: array<f32, RL>;
    var top: array<f32, RL>;
    var sum: array<f32, RL>;  // this invocation's share
    //@unroll
    for (var r = 0u; r < RL; r++) {
        let row = lid / QN + r * (WG / QN);
        let m = min(m0 + row, last - 1u);
        scale[r] = undo[m * HEADS + head];
        top[r] = LOWEST;
        sum[r] = 0.0;
    }

    //@rounds CONTEXT / BK + 2
    for (var base = first; base < end; base += BK) {
        store_tile(lid, fetched);
        workgroupBarrier();
        fetched = fetch_values(lid, cells, min(total - 1u - base, BK - 1u));
        var s: array<Sums, FM * FS>;
        //@unroll
        for (var i = 0u; i < FM * FS; i++) { s[i] = Sums(); }
        //@unroll
        for (var k = 0u; k < FD; k++) {
            var left: array<Left, FM>;
            //@unroll
            for (var i = 0u; i < FM; i++) {
                if (HOLD == 1u) { left[i] = query[i * FD + k]; } else { left[i] = load_left((f0 + i) * 16u * S4 + 4u * k, S4); }
            }
            //@unroll
            for (var j = 0u; j < FS; j++) {
                let right = load_right(KV_AT + (wx * FS + j) * 16u * S4 + 4u * k, S4);
                //@unroll
                for (var i = 0u; i < FM; i++) { s[i * FS + j] = multiply_add(left[i], right, s[i * FS + j], lane); }
            }
        }
        //@unroll
        for (var i = 0u; i < FM; i++) {
            //@unroll
            for (var j = 0u; j < FS; j++) { store_sums(s[i * FS + j], ((f0 + i) * FK + wx * FS + j) * 256u, 16u, lane); }
        }
        workgroupBarrier();

        var inside = base + BK <= end;  // every row sees the whole tile
        if (CAUSAL) { inside = inside && base + BK <= at0 + 1u; }
        if (WINDOW > 0u) { inside = inside && base + WINDOW >= at0 + BM && base + BK <= at0 + WINDOW; }
        if (CHUNK > 0u) { let seen = at0 + BM - 1u; inside = inside && base + seen % max(CHUNK, 1u) >= seen; }
        var grew = 0.0;
        //@unroll
        for (var r = 0u; r < RL; r++) {
            let row = lid / QN + r * (WG / QN);
            let at = at0 + row;
            var v: array<vec4<f32>, QC>;
            var high = LOWEST;
            //@unroll
            for (var i = 0u; i < QC; i++) {
                let c = lid % QN + i * QN;
                let source = (row / 16u * FK + c / 4u) * 256u + row % 16u * 16u + c % 4u * 4u;
                var w = scale[r] * vec4<f32>(staged[source], staged[source + 1u], staged[source + 2u], staged[source + 3u]);
                if (SOFTCAP > 0.0) {
                    w = vec4<f32>(soft_cap(w.x, SOFTCAP), soft_cap(w.y, SOFTCAP), soft_cap(w.z, SOFTCAP), soft_cap(w.w, SOFTCAP));
                }
                w *= LOG2_E;
                if (!inside) { w = visible(w, base + 4u * c, at, end); }
                v[i] = w;
                high = max(high, max(max(w.x, w.y), max(w.z, w.w)));
            }
            high = team_max(high, lid, QN);
            let outgrows = high > top[r] + MARGIN;
            if (outgrows && top[r] > LOWEST) { grew = 1.0; }
            let now = select(top[r], high, outgrows);
            let shrink = two_to(top[r] - now);
            if (lid % QN == 0u) { row_factor[row] = shrink; }
            top[r] = now;
            sum[r] *= shrink;
            //@unroll
            for (var i = 0u; i < QC; i++) {
                let c = lid % QN + i * QN;
                let x = v[i] - now;
                var p = vec4<f32>(two_to(x.x), two_to(x.y), two_to(x.z), two_to(x.w));
                if (!inside) {
                    p = select(p, vec4<f32>(0.0), bitcast<vec4<u32>>(v[i]) == vec4<u32>(bitcast<u32>(LOWEST)));
                }
                sum[r] += p.x + p.y + p.z + p.w;
                tile[P_AT + row * P4 + c] = halves(p);
            }
        }
        grew = team_max(grew, lid, LANES);
        if (lane == 0u) { outgrown[own] = u32(grew); }
        store_tile(lid, fetched);
        if (base + BK < end) {
            cells = place_tile(place.y, kv, base + BK, total, own_row);
            fetched = fetch_keys(lid, cells, min(total - 1u - base - BK, BK - 1u));
        }
        let each = workgroupUniformLoad(&outgrown);
        var any = 0u;
        //@unroll
        for (var i = 0u; i < TEAMS; i++) { any |= each[i]; }
        if (any != 0u) {
            //@unroll
            for (var turn = 0u; turn < TURNS; turn++) {
                //@unroll
                for (var i = turn * OWN; i < min(turn * OWN + OWN, FM * FO); i++) {
                    store_sums(acc[i], (own * OWN + i - turn * OWN) * 256u, 16u, lane);
                }
                workgroupBarrier();
                //@unroll
                for (var i = turn * OWN; i < min(turn * OWN + OWN, FM * FO); i++) {
                    //@unroll
                    for (var p = 0u; p < QUADS; p++) {
                        let quad = lane + p * LANES;
                        let at = (own * OWN + i - turn * OWN) * 256u + 4u * quad;
                        let f = row_factor[(f0 + i / FO) * 16u + quad / 4u];
                        staged[at] *= f;
                        staged[at + 1u] *= f;
                        staged[at + 2u] *= f;
                        staged[at + 3u] *= f;
                    }
                }
                workgroupBarrier();
                //@unroll
                for (var i = turn * OWN; i < min(turn * OWN + OWN, FM * FO); i++) {
                    acc[i] = load_sums((own * OWN + i - turn * OWN) * 256u, lane);
                }
                workgroupBarrier();
            }
        }
        //@unroll
        for (var k = 0u; k < FK; k++) {
            var left: array<Left, FM>;
            //@unroll
            for (var i = 0u; i < FM; i++) { left[i] = load_left(P_AT + (f0 + i) * 16u * P4 + 4u * k, P4); }
            //@unroll
            for (var j = 0u; j < FO; j++) {
                let right = load_right_turned(KV_AT + 16u * k * S4 + 4u * (wx * FO + j), S4);
                //@unroll
                for (var i = 0u; i < FM; i++) {
                    acc[i * FO + j] = multiply_add(left[i], right, acc[i * FO + j], lane);
                }
            }
        }
        workgroupBarrier();
    }

    //@unroll
    for (var r = 0u; r < RL; r++) {
        let row = lid / QN + r * (WG / QN);
        var weights = team_sum(sum[r], lid, QN);
        var shrunk = 1.0;
        if (SINKS) {
            let sink = LOG2_E * head_params[SINKS_AT + head];
            let high = max(top[r], sink);
            shrunk = two_to(top[r] - high);
            weights = weights * shrunk + two_to(sink - high);
        }
        if (lid % QN == 0u) { row_factor[row] = shrunk / max(weights, SMALLEST_NORMAL); }
    }
    //@unroll
    for (var turn = 0u; turn < TURNS; turn++) {
        //@unroll
        for (var i = turn * OWN; i < min(turn * OWN + OWN, FM * FO); i++) {
            store_sums(acc[i], (own * OWN + i - turn * OWN) * 256u, 16u, lane);
        }
        workgroupBarrier();
        //@unroll
        for (var i = turn * OWN; i < min(turn * OWN + OWN, FM * FO); i++) {
            //@unroll
            for (var p = 0u; p < QUADS; p++) {
                let quad = lane + p * LANES;
                let at = (own * OWN + i - turn * OWN) * 256u + 4u * quad;
                let row = (f0 + i / FO) * 16u + quad / 4u;
                let m = m0 + row;
                let d = 4u * (wx * FO + i % FO) + quad % 4u;
                if (m < last && d < HD4) {
                    let v = vec4<f32>(staged[at], staged[at + 1u], staged[at + 2u], staged[at + 3u]);
                    y[(m * HEADS + head) * HD4 + d] = row_factor[row] * v;
                }
            }
        }
        workgroupBarrier();
    }
}
