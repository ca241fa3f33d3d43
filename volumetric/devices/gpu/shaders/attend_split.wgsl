// Decoding attention, a row of each sequence: q/k norm, rotation, cache append, and a split of the cache with an online softmax.
// Workgroup (kv head and block of G query heads, row, split). Teams of TEAM invocations take positions in turn, UNROLL at once;
// lanes split the head, VPL vectors each. The first round of keys and values is on its way before q is prepared: the
// kernel is a chain of memory latencies, and these two overlap. The new row's k and v are used from workgroup memory by
// split 0, which alone appends them, so no workgroup reads what another writes. Partial results are combined by
// attend_combine or by the output projection (source/partials); with one split (ALONE) they are the output.
@group(0) @binding(0) var<storage, read> qkv: array<f32>;
@group(0) @binding(1) var<storage, read> head_params: array<f32>;    // gains of q, of k (each HEAD_DIM, or so many for each head), sinks
@group(0) @binding(2) var<storage, read> rope: array<vec2<f32>>;     // (positions, ROTARY / 2): cos, sin
@group(0) @binding(3) var<storage, read_write> keys: array<Cached>;  // (pages, KV_HEADS, PAGE, HD4)
@group(0) @binding(4) var<storage, read_write> values: array<Cached>;
@group(0) @binding(5) var<storage, read_write> parts: array<vec4<f32>>;   // (rows, SPLITS, HEADS, HD4)
@group(0) @binding(6) var<storage, read_write> maxima: array<vec2<f32>>;  // (rows, SPLITS, HEADS): maximum, sum

const HD4: u32 = (HEAD_DIM + 3u) / 4u;
const WIDE: u32 = HD4 * 4u;
const HALF: u32 = ROTARY / 2u;
const TEAMS: u32 = WG / TEAM;
const SHARE: u32 = HEADS / KV_HEADS;

var<workgroup> heads: array<f32, (G + 2u) * WIDE>;  // q heads, the new k, the new v
var<workgroup> team_state: array<vec2<f32>, TEAMS * G>;
var<workgroup> team_acc: array<vec4<f32>, TEAMS * G * HD4>;

fn head4(h: u32, d4: u32) -> vec4<f32> {
    let at = h * WIDE + 4u * min(d4, HD4 - 1u);
    return select(vec4<f32>(0.0), vec4<f32>(heads[at], heads[at + 1u], heads[at + 2u], heads[at + 3u]), d4 < HD4);
}

// Where head `h` of this workgroup (q heads, k, v) starts in qkv.
fn column(h: u32, row: u32, kv: u32, block: u32) -> u32 {
    if (h < G) { return row * QKV_STRIDE + (kv * SHARE + block * G + h) * HEAD_DIM; }
    return row * QKV_STRIDE + (HEADS + kv + select(0u, KV_HEADS, h > G)) * HEAD_DIM;
}

// Element d of head h (of q or k) after its rotation.
fn rotated(h: u32, d: u32, at: u32, position: u32) -> f32 {
    let own = qkv[at + d];
    if (ROTARY == 0u) { return own; }
    let turns = h <= G && d < ROTARY;
    let low = d < HALF;
    let other = qkv[at + select(d, select(d - HALF, d + HALF, low), turns)];
    let turn = rope[position * HALF + select(0u, select(d - HALF, d, low), turns)];
    return select(own, own * turn.x + select(other, -other, low) * turn.y, turns);
}

struct Round { k: array<Cached, UNROLL * VPL>, v: array<Cached, UNROLL * VPL> }

// Keys and values of the positions from `base` on that this invocation takes; those beyond `end` repeat the last.
fn load_round(line: u32, kv: u32, base: u32, end: u32, team: u32, lane: u32) -> Round {
    var r: Round;
    //@unroll
    for (var u = 0u; u < UNROLL; u++) {
        let position = min(base + u * TEAMS + team, max(end, 1u) - 1u);
        let at = cell(page_of(line, position), kv, position) * HD4;
        //@unroll
        for (var j = 0u; j < VPL; j++) {
            r.k[u * VPL + j] = keys[at + min(lane + j * TEAM, HD4 - 1u)];
            r.v[u * VPL + j] = values[at + min(lane + j * TEAM, HD4 - 1u)];
        }
    }
    return r;
}

fn load_heads(row: u32, position: u32, kv: u32, block: u32, lid: u32) {
    for (var i = lid; i < (G + 2u) * WIDE; i += WG) {
        let h = i / WIDE;
        let d = min(i % WIDE, HEAD_DIM - 1u);
        let at = column(h, row, kv, block);
        var value = 0.0;
        if (QK_NORM != 0u) { value = qkv[at + d]; } else { value = rotated(h, d, at, position); }
        heads[i] = select(0.0, value, i % WIDE < HEAD_DIM);
    }
    workgroupBarrier();
    if (QK_NORM != 0u) {
        for (var base = 0u; base < G + 1u; base += TEAMS) {
            let h = base + lid / TEAM;
            let at = min(h, G) * WIDE;
            if (QK_NORM == 2u) {
                for (var again = 0u; again < 2u; again++) {  // the second time takes what rounding took from the mean
                    var part = 0.0;
                    for (var d = lid % TEAM; d < HEAD_DIM; d += TEAM) { part += heads[at + d]; }
                    let mean = team_sum(part, lid, TEAM) / f32(HEAD_DIM);
                    if (h <= G) { for (var d = lid % TEAM; d < HEAD_DIM; d += TEAM) { heads[at + d] -= mean; } }
                }
            }
            var sum = 0.0;
            for (var d = lid % TEAM; d < HEAD_DIM; d += TEAM) { sum += heads[at + d] * heads[at + d]; }
            let rstd = inverseSqrt(team_sum(sum, lid, TEAM) / f32(HEAD_DIM) + EPS);
            if (h <= G) {
                let own = select(kv * SHARE + block * G + h, HEADS + kv, h == G) * HEAD_DIM;
                let gain = select(select(0u, HEAD_DIM, h == G), own, OWN_GAINS);
                for (var d = lid % TEAM; d < HEAD_DIM; d += TEAM) {
                    var gained = 1.0;
                    if (GAINS) { gained = head_params[gain + d] + NORM_UNIT; }
                    heads[at + d] *= rstd * gained;
                }
            }
        }
        workgroupBarrier();
    }
    if (QK_NORM != 0u && ROTARY > 0u) {
        for (var i = lid; i < (G + 1u) * HALF; i += WG) {
            let turn = rope[position * HALF + i % max(HALF, 1u)];
            let at = i / max(HALF, 1u) * WIDE + i % max(HALF, 1u);  // HALF may be 0, and a constant must not divide by 0
            let a = heads[at];
            let b = heads[at + HALF];
            heads[at] = a * turn.x - b * turn.y;
            heads[at + HALF] = b * turn.x + a * turn.y;
        }
        workgroupBarrier();
    }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let kv = group.x / (SHARE / G);
    let block = group.x % (SHARE / G);
    let row = group.y;
    let split = group.z;
    let place = ctl.places[row];
    let position = place.x;
    let lane = lid % TEAM;
    let team = lid / TEAM;
    var low = 0u;
    if (WINDOW > 0u) { low = max(position + 1u, WINDOW) - WINDOW; }
    if (CHUNK > 0u) { low = max(low, position - position % max(CHUNK, 1u)); }
    let share = (position - low + SPLITS - 1u) / SPLITS;
    let first = low + split * share;
    let end = min(first + share, position);
    var round = load_round(place.y, kv, first, end, team, lane);
    load_heads(row, position, kv, block, lid);
    if (split == 0u && block == 0u) {
        let at = cell(page_of(place.y, position), kv, position) * HD4;
        for (var d4 = lid; d4 < HD4; d4 += WG) {
            keys[at + d4] = to_cache(head4(G, d4));
            values[at + d4] = to_cache(head4(G + 1u, d4));
        }
    }
    var q: array<vec4<f32>, G * VPL>;
    var acc: array<vec4<f32>, G * VPL>;
    var top: array<f32, G>;
    var sum: array<f32, G>;
    // One team of all starts with the new row, the others with nothing.
    let scale = SCALE * warmth(position);
    let takes_new = split == 0u && team == 0u;
    //@unroll
    for (var g = 0u; g < G; g++) {
        var part = 0.0;
        //@unroll
        for (var j = 0u; j < VPL; j++) {
            q[g * VPL + j] = scale * head4(g, lane + j * TEAM);
            part += dot(q[g * VPL + j], from_cache(to_cache(head4(G, lane + j * TEAM))));
            let v = from_cache(to_cache(head4(G + 1u, lane + j * TEAM)));
            acc[g * VPL + j] = select(vec4<f32>(0.0), v, takes_new);
        }
        var score = team_sum(part, lid, TEAM);
        if (SOFTCAP > 0.0) { score = soft_cap(score, SOFTCAP); }
        top[g] = select(LOWEST, score, takes_new);
        sum[g] = select(0.0, 1.0, takes_new);
    }

    //@rounds CONTEXT / (SPLITS * TEAMS * UNROLL) + 2
    for (var base = first; base < end; base += TEAMS * UNROLL) {
        //@unroll
        for (var g = 0u; g < G; g++) {
            var s: array<f32, UNROLL>;
            var high = top[g];
            //@unroll
            for (var u = 0u; u < UNROLL; u++) {
                var part = 0.0;
                //@unroll
                for (var j = 0u; j < VPL; j++) { part += dot(q[g * VPL + j], from_cache(round.k[u * VPL + j])); }
                var score = team_sum(part, lid, TEAM);
                if (SOFTCAP > 0.0) { score = soft_cap(score, SOFTCAP); }
                s[u] = select(LOWEST, score, base + u * TEAMS + team < end);
                high = max(high, s[u]);
            }
            let shrink = decay(top[g] - high);
            top[g] = high;
            sum[g] *= shrink;
            //@unroll
            for (var j = 0u; j < VPL; j++) { acc[g * VPL + j] *= shrink; }
            //@unroll
            for (var u = 0u; u < UNROLL; u++) {
                let p = attention_weight(s[u], high);
                sum[g] += p;
                //@unroll
                for (var j = 0u; j < VPL; j++) { acc[g * VPL + j] += p * from_cache(round.v[u * VPL + j]); }
            }
        }
        if (base + TEAMS * UNROLL < end) { round = load_round(place.y, kv, base + TEAMS * UNROLL, end, team, lane); }
    }
    //@unroll
    for (var g = 0u; g < G; g++) {
        if (lane == 0u) { team_state[team * G + g] = vec2<f32>(top[g], sum[g]); }
        //@unroll
        for (var j = 0u; j < VPL; j++) {
            if (lane + j * TEAM < HD4) { team_acc[(team * G + g) * HD4 + lane + j * TEAM] = acc[g * VPL + j]; }
        }
    }
    workgroupBarrier();
    for (var i = lid; i < G * HD4; i += WG) {
        let g = i / HD4;
        var high = LOWEST;
        //@unroll
        for (var t = 0u; t < TEAMS; t++) { high = max(high, team_state[t * G + g].x); }
        var total = vec4<f32>(0.0);
        var weights = 0.0;
        //@unroll
        for (var t = 0u; t < TEAMS; t++) {
            let s = team_state[t * G + g];
            let weight = select(decay(s.x - high), 0.0, s.y == 0.0);
            weights += weight * s.y;
            total += weight * team_acc[t * G * HD4 + i];
        }
        let number = kv * SHARE + block * G + g;
        if (SINKS && split == 0u) {
            let sink = head_params[SINKS_AT + number];
            let higher = max(high, sink);
            total *= decay(high - higher);
            weights = weights * decay(high - higher) + decay(sink - higher);
            high = higher;
        }
        let head = (row * SPLITS + split) * HEADS + number;
        if (ALONE) {
            parts[head * HD4 + i % HD4] = total / max(weights, SMALLEST_NORMAL);
        } else {
            parts[head * HD4 + i % HD4] = total;
            if (i % HD4 == 0u) { maxima[head] = vec2<f32>(high, weights); }
        }
    }
}
