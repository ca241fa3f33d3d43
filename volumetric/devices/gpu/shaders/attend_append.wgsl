// Prefill: q/k norm and rotation of every head of every row of the longer sequences; k and v go to the cache, q
// (scaled) to a separate buffer, in the form of a prelude of `queries`. A workgroup handles one head of one row. Heads of qkv are numbered q, then k, then v.
@group(0) @binding(0) var<storage, read> qkv: array<f32>;            // (rows, QKV_STRIDE)
@group(0) @binding(1) var<storage, read> head_params: array<f32>;    // gains of q, of k (each HEAD_DIM, or so many for each head), sinks
@group(0) @binding(2) var<storage, read> rope: array<vec2<f32>>;     // (positions, ROTARY / 2): cos, sin
@group(0) @binding(3) var<storage, read_write> keys: array<Cached>;  // (pages, KV_HEADS, PAGE, HD4)
@group(0) @binding(4) var<storage, read_write> values: array<Cached>;
@group(0) @binding(5) var<storage, read_write> q: array<Query>;      // (rows, HEADS, HD4)

const HD4: u32 = (HEAD_DIM + 3u) / 4u;
const HALF: u32 = ROTARY / 2u;

var<workgroup> head: array<f32, HD4 * 4u>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let row = ctl.singles + group.y;
    let place = row_place(row);
    let h = group.x;
    let is_value = h >= HEADS + KV_HEADS;
    let position = select(row, place.x, HAS_STATE);  // in the cache
    for (var d = lid; d < HD4 * 4u; d += WG) {
        head[d] = select(0.0, qkv[row * QKV_STRIDE + h * HEAD_DIM + min(d, HEAD_DIM - 1u)], d < HEAD_DIM);
    }
    workgroupBarrier();
    if (QK_NORM == 2u && !is_value) {
        for (var again = 0u; again < 2u; again++) {  // the second time takes what rounding took from the mean
            var part = 0.0;
            for (var d = lid; d < HEAD_DIM; d += WG) { part += head[d]; }
            let mean = team_sum(part, lid, WG) / f32(HEAD_DIM);
            for (var d = lid; d < HEAD_DIM; d += WG) { head[d] -= mean; }
        }
    }
    if (QK_NORM != 0u) {
        var sum = 0.0;
        for (var d = lid; d < HEAD_DIM; d += WG) { sum += head[d] * head[d]; }
        let rstd = inverseSqrt(team_sum(sum, lid, WG) / f32(HEAD_DIM) + EPS);
        if (!is_value) {
            let gain = select(select(0u, HEAD_DIM, h >= HEADS), h * HEAD_DIM, OWN_GAINS);
            for (var d = lid; d < HEAD_DIM; d += WG) {
                var own = 1.0;
                if (GAINS) { own = head_params[gain + d] + NORM_UNIT; }
                head[d] *= rstd * own;
            }
        }
        workgroupBarrier();
    }
    if (ROTARY > 0u && !is_value) {
        for (var i = lid; i < HALF; i += WG) {
            let turn = rope[place.x * HALF + i];
            let a = head[i];
            let b = head[i + HALF];
            head[i] = a * turn.x - b * turn.y;
            head[i + HALF] = b * turn.x + a * turn.y;
        }
    }
    workgroupBarrier();
    let scale = SCALE * warmth(place.x);
    var power = 1.0;
    if (h < HEADS) { power = query_power(row * HEADS + h, scale, lid); }
    if (row >= ctl.rows) { return; }
    let page = page_of(place.y, position);
    for (var d4 = lid; d4 < HD4; d4 += WG) {
        let v = vec4<f32>(head[4u * d4], head[4u * d4 + 1u], head[4u * d4 + 2u], head[4u * d4 + 3u]);
        if (h < HEADS) {
            q[(row * HEADS + h) * HD4 + d4] = to_query(power * (scale * v));
        } else if (!is_value) {
            keys[cell(page, h - HEADS, position) * HD4 + d4] = to_cache(v);
        } else {
            values[cell(page, h - HEADS - KV_HEADS, position) * HD4 + d4] = to_cache(v);
        }
    }
}
