// The pairs of rows and experts in the order of experts, and of rows within; a workgroup an expert. `routes` has, at the
// place of a pair in that order, its row and the bits of its weight; by the number of a pair its place; then two lists of
// blocks: first and last place, and the expert. Blocks of an expert begin at a number that needs no other workgroup: with p
// pairs of experts before expert e, these have at most p / EACH + e blocks. Those in between are empty.
@group(0) @binding(0) var<storage, read> chosen: array<vec2<u32>>;       // (rows, SLOTS)
@group(0) @binding(1) var<storage, read_write> routes: array<u32>;       // 3 × PAIRS words, then 4 words for each block

const NOBODY: u32 = 0xffffffffu;
const RANGE: u32 = (PAIRS + WG - 1u) / WG;  // most pairs that an invocation looks at

var<workgroup> counts: array<u32, WG>;

fn expert_of(pair: u32) -> u32 {
    let slot = chosen[pair];
    return select(slot.x, NOBODY, (slot.y & 0x7fffffffu) == 0u);
}

fn list_blocks(at: u32, each: u32, expert: u32, first: u32, end: u32, pairs: u32, lid: u32) {
    let start = first / each + expert;
    let stop = select(end / each + expert + 1u, (pairs + each - 1u) / each + EXPERTS, expert == EXPERTS - 1u);
    //@rounds RANGE + EXPERTS
    for (var b = start + lid; b < stop; b += WG) {
        let place = min(first + (b - start) * each, end);
        routes[at + 4u * b] = place;
        routes[at + 4u * b + 1u] = min(place + each, end);
        routes[at + 4u * b + 2u] = expert;
    }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let expert = group.x;
    let pairs = min(ctl.rows * SLOTS, PAIRS);
    let range = (pairs + WG - 1u) / WG;
    let begin = min(lid * range, pairs);
    let end = min(begin + range, pairs);
    var less = 0u;
    var own = 0u;
    //@rounds RANGE
    for (var i = begin; i < end; i++) {
        let e = expert_of(i);
        less += select(0u, 1u, e < expert);
        own += select(0u, 1u, e == expert);
        if (expert == 0u && e == NOBODY) { routes[2u * PAIRS + i] = NOBODY; }
    }
    counts[lid] = own;
    let first = u32(team_sum(f32(less), lid, WG));
    let total = u32(team_sum(f32(own), lid, WG));
    workgroupBarrier();
    var at = first;
    for (var j = 0u; j < WG; j++) { at += select(0u, counts[j], j < lid); }
    //@rounds RANGE
    for (var i = begin; i < end; i++) {
        let slot = chosen[i];
        if (expert_of(i) == expert) {
            routes[at] = i / SLOTS;
            routes[PAIRS + at] = slot.y;
            routes[2u * PAIRS + i] = at;
            at += 1u;
        }
    }
    list_blocks(FIRST_AT, FIRST_EACH, expert, first, first + total, pairs, lid);
    list_blocks(SECOND_AT, SECOND_EACH, expert, first, first + total, pairs, lid);
}
