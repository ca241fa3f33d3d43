// The next token of each row: where the running sum of the weights of possible tokens passes the row's random fraction
// of the total, or the largest score. It is written as by argmax.wgsl, with the same codes. If the sums cannot
// determine the result in float64, UNCERTAIN replaces the token, and the row's scores are kept for the host. A step in
// flight after a code keeps it.
@group(0) @binding(3) var<storage, read> sums: array<vec2<u32>>;           // (rows, GROUPS)
@group(0) @binding(4) var<storage, read> cuts: array<vec4<u32>>;           // (rows)
@group(0) @binding(5) var<storage, read_write> token: array<u32>;          // (rows)
@group(0) @binding(6) var<storage, read_write> control: array<u32>;
@group(0) @binding(7) var<storage, read_write> doubtful: array<vec4<u32>>; // (rows, VECTORS)

const NOT_A_NUMBER: u32 = 0xffffffffu;
const INFINITE: u32 = 0xfffffffeu;
const NONE_POSSIBLE: u32 = 0xfffffffdu;
const UNCERTAIN: u32 = 0xfffffffcu;
const PLACES_AT: u32 = 60u;  // words before `Control.places`

var<workgroup> chosen: u32;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let row = group.y;
    let plan = plan_of(row);
    let winner = largest_of(row, lid);
    let top = bitcast<f32>(bits_of(winner.x));
    let found = cuts[row];
    let cut = cut_of(row, plan, found);
    let summed = usable(winner.x) && (plan.flags & DRAWN) != 0u && plan.top_k == 0u;
    let certain = found.z == USABLE || (plan.flags & BY_WEIGHT) == 0u;
    if (lid == 0u) {
        chosen = UNCERTAIN;
        if (plan.top_k > 0u && found.z == DECIDED) { chosen = found.w; }
        if ((plan.flags & (DRAWN | WITHHELD)) == 0u) { chosen = winner.y; }
        if (!usable(winner.x)) { chosen = UNCERTAIN; }
        if ((plan.flags & ADJUSTED) == 0u) {
            if (winner.x == rank_of(0xff800000u)) { chosen = NONE_POSSIBLE; }
            if (winner.x == rank_of(0x7f800000u)) { chosen = INFINITE; }
            if (winner.x > rank_of(0x7f800000u)) { chosen = NOT_A_NUMBER; }
        }
    }
    var whole = vec2<u32>(0u);
    for (var g = 0u; g < GROUPS; g++) { whole = sum_of(whole, sums[row * GROUPS + g]); }
    let point = part_of(whole, number_at(row, control[PLACES_AT + 4u * row]));
    let doubt = margin(whole);
    var base = vec2<u32>(0u);
    var part = 0u;
    for (var g = 0u; g + 1u < GROUPS; g++) {
        let after = sum_of(base, sums[row * GROUPS + g]);
        if (less_than(point, after)) { break; }
        base = after;
        part = g + 1u;
    }
    var own = vec2<u32>(0u);
    let run = part * WG + lid;
    if (summed) { own = run_sum(row, top, run, plan, cut); }
    let after = sum_of(base, running_sum(own, lid)[0]);
    var before = difference(after, own);
    if (summed && certain && !less_than(point, before) && less_than(point, after)) {
        for (var i = 0u; i < 4u * EACH; i++) {
            let index = 4u * EACH * run + i;
            if (index >= WIDTH) { break; }
            let sum = sum_of(before, drawn_weight(top, x[row * VECTORS + index / 4u][index % 4u], index, plan, cut));
            if (less_than(point, sum)) {
                if (!near(point, before, doubt) && !near(point, sum, doubt)) { chosen = index; }
                break;
            }
            before = sum;
        }
    }
    workgroupBarrier();
    let earlier = token[row];
    let next = chosen;
    workgroupBarrier();
    if (lid == 0u) {
        token[row] = select(next, earlier, earlier >= UNCERTAIN);
        control[PLACES_AT + 4u * row] += 1u;
    }
    if (next == UNCERTAIN && earlier < UNCERTAIN) {
        for (var v = lid; v < VECTORS; v += WG) { doubtful[row * VECTORS + v] = x[row * VECTORS + v]; }
    }
}
