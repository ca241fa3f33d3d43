// `attend_append` with queries as halves, where heads and rotations are whole pairs of vectors: a team of TEAM invocations
// handles a head of a row, each of them two vectors that a rotation turns together.
@group(0) @binding(0) var<storage, read> qkv: array<vec4<f32>>;          // (rows, QKV_STRIDE / 4)
@group(0) @binding(1) var<storage, read> head_params: array<vec4<f32>>;  // gains of q, of k (each HD4, or so many for each head), sinks
@group(0) @binding(2) var<storage, read> rope: array<vec4<f32>>;         // (positions, ROTARY / 4): cos, sin, cos, sin
@group(0) @binding(3) var<storage, read_write> keys: array<Cached>;      // (pages, KV_HEADS, PAGE, HD4)
@group(0) @binding(4) var<storage, read_write> values: array<Cached>;
@group(0) @binding(5) var<storage, read_write> q: array<Query>;          // (rows, HEADS, HD4)

const HD4: u32 = HEAD_DIM / 4u;
const PAIRS: u32 = HD4 / 2u;
const TURNED: u32 = ROTARY / 8u;  // pairs that are rotated; those of the others are neighbours
const ALL: u32 = HEADS + 2u * KV_HEADS;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let row = ctl.singles + group.y;
    let place = row_place(row);
    let position = select(row, place.x, HAS_STATE);  // in the cache
    let number = group.x * (WG / TEAM) + lid / TEAM;
    let h = min(number, ALL - 1u);
    let is_value = h >= HEADS + KV_HEADS;
    let part = lid % TEAM;
    let pair = min(part, PAIRS - 1u);
    let turns = pair < TURNED;
    let low = select(2u * pair, pair, turns);
    let high = select(2u * pair + 1u, pair + TURNED, turns);
    let start = (row * QKV_STRIDE + h * HEAD_DIM) / 4u;
    var a = qkv[start + low];
    var b = qkv[start + high];
    if (QK_NORM != 0u) {
        let counts = select(0.0, 1.0, part < PAIRS);
        let ones = vec4<f32>(counts);
        if (QK_NORM == 2u) {
            for (var again = 0u; again < 2u; again++) {  // the second time takes what rounding took from the mean
                let mean = team_sum(dot(a, ones) + dot(b, ones), lid, TEAM) / f32(HEAD_DIM);
                if (!is_value) { a -= mean; b -= mean; }
            }
        }
        let rstd = inverseSqrt(team_sum(counts * (dot(a, a) + dot(b, b)), lid, TEAM) / f32(HEAD_DIM) + EPS);
        if (!is_value) {
            let gain = select(select(0u, HD4, h >= HEADS), h * HD4, OWN_GAINS);
            a *= rstd;
            b *= rstd;
            if (GAINS) {
                a *= head_params[gain + low] + NORM_UNIT;
                b *= head_params[gain + high] + NORM_UNIT;
            }
        }
    }
    if (ROTARY > 0u && !is_value && turns) {
        let first = rope[2u * (place.x * TURNED + pair)];
        let second = rope[2u * (place.x * TURNED + pair) + 1u];
        let cosine = vec4<f32>(first.xz, second.xz);
        let sine = vec4<f32>(first.yw, second.yw);
        let turned_low = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = turned_low;
    }
    if (h < HEADS) {
        let scale = SCALE * warmth(place.x);
        a *= scale;
        b *= scale;
    }
    let top = max(magnitude_bits(a), magnitude_bits(b));
    let powers = halving_powers(team_max(f32(top >> 23u), lid, TEAM));
    if (number >= ALL || part >= PAIRS || row >= ctl.rows) { return; }
    if (h < HEADS) {
        let at = (row * HEADS + h) * HD4;
        q[at + low] = to_query(powers.x * a);
        q[at + high] = to_query(powers.x * b);
        if (part == 0u) { undo[row * HEADS + h] = powers.y; }
        return;
    }
    let page = page_of(place.y, position);
    if (is_value) {
        let at = cell(page, h - HEADS - KV_HEADS, position) * HD4;
        values[at + low] = to_cache(a);
        values[at + high] = to_cache(b);
    } else {
        let at = cell(page, h - HEADS, position) * HD4;
        keys[at + low] = to_cache(a);
        keys[at + high] = to_cache(b);
    }
}
