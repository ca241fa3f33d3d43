// The experts that each row takes: of COUNT choices the KEEP largest, of equals the earlier, those of weight 0 left out, in
// rising order, with their weights; a workgroup a row. Slots that are left over name the first expert with a weight of 0.
// A row with a choice that allows no weights (NaN; before a softmax also +inf) has NaN for all of its weights.
@group(0) @binding(0) var<storage, read> choice: array<f32>;                // (rows, STRIDE)
@group(0) @binding(1) var<storage, read_write> chosen: array<vec2<u32>>;    // (rows, KEEP): an expert, bits of its weight

const STRIDE: u32 = (COUNT + 3u) / 4u * 4u;
const GIVEN: u32 = 0u;     // weights are the choices themselves
const LARGEST: u32 = 1u;   // the same, none below 0
const SOFTMAX: u32 = 2u;   // softmax of those that are kept; beyond: of all

var<workgroup> score: array<f32, COUNT>;
var<workgroup> place: array<u32, COUNT>;
var<workgroup> taken: array<u32, COUNT>;
var<workgroup> slot_expert: array<u32, KEEP>;
var<workgroup> slot_weight: array<f32, KEEP>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE;
    var top = LOWEST;
    var odd = 0.0;
    for (var i = lid; i < COUNT; i += WG) {
        let v = choice[start + i];
        if (is_nan(v) || (SCORING >= SOFTMAX && is_odd(v))) { odd = 1.0; } else { top = max(top, v); }
    }
    top = team_max(top, lid, WG);
    odd = team_max(odd, lid, WG);
    var every = 1.0;
    if (SCORING > SOFTMAX) {
        var sum = 0.0;
        for (var i = lid; i < COUNT; i += WG) { sum += exponential(choice[start + i] - top); }
        every = max(team_sum(sum, lid, WG), SMALLEST_NORMAL);
    }
    for (var i = lid; i < COUNT; i += WG) {
        var v = choice[start + i];
        if (SCORING > SOFTMAX) { v = exponential(v - top) / every; }
        place[i] = place_of(v);
        if (SCORING == SOFTMAX) { v = exponential(v - top); }
        score[i] = v;
    }
    workgroupBarrier();
    for (var i = lid; i < COUNT; i += WG) {
        let own = place[i];
        var before = 0u;
        for (var j = 0u; j < COUNT; j++) { before += select(0u, 1u, place[j] > own || (place[j] == own && j < i)); }
        let v = score[i];
        taken[i] = select(0u, 1u, before < KEEP && v != 0.0 && (SCORING == GIVEN || v > 0.0));
    }
    workgroupBarrier();
    for (var i = lid; i < COUNT; i += WG) {
        var slot = 0u;
        //@rounds COUNT
        for (var j = 0u; j < i; j++) { slot += taken[j]; }
        if (taken[i] == 1u) {
            slot_expert[slot] = i;
            slot_weight[slot] = score[i];
        }
    }
    var count = 0u;
    for (var j = 0u; j < COUNT; j++) { count += taken[j]; }
    workgroupBarrier();
    var total = 1.0;
    if (SCORING == SOFTMAX) {
        total = 0.0;
        for (var s = 0u; s < KEEP; s++) { total += select(0.0, slot_weight[s], s < count); }
    }
    for (var s = lid; s < KEEP; s += WG) {
        let used = select(0u, s, s < count);
        let expert = select(0u, slot_expert[used], count > 0u);
        var weight = select(0.0, slot_weight[used] / total, s < count);
        if (odd > 0.0) { weight = nan(); }
        chosen[group.y * KEEP + s] = vec2<u32>(min(expert, COUNT - 1u), bitcast<u32>(weight));
    }
}
