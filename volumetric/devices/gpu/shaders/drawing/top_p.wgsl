// Where top-p cuts: the fewest scores, the largest first and the first of equals, that have this part of a row's weight.
// A workgroup a row: the bin in which they reach it, the part of that bin, and each of the few scores in that.
const PARTS: u32 = WG;
const FEW: u32 = 128u;
const WEIGH: u32 = 0u;
const KEEP: u32 = 1u;
const SMALL: f32 = 0x1p-16;  // depths in bins below which weights of unequal scores may be equal in float64

var<workgroup> low: array<atomic<u32>, PARTS>;
var<workgroup> high: array<atomic<u32>, PARTS>;
var<workgroup> part: array<u32, 4>;
var<workgroup> kept: atomic<u32>;
var<workgroup> doubts: atomic<u32>;
var<workgroup> few: array<vec4<u32>, FEW>;  // bits of the depth, index, weight
var<workgroup> cut: array<u32, 4>;

fn part_at(v: f32) -> u32 {
    let bin = found[0];
    let first = select(f32(FINE) + 16.0 * f32(bin - FINE), f32(bin), bin < FINE);
    let each = select(f32(PARTS) / 16.0, f32(PARTS), bin < FINE);
    return u32(clamp((v - first) * each, 0.0, f32(PARTS - 1u)));
}

fn weigh_part(d: f32, plan: Plan) {
    let at = d * plan.fold;
    if (at > 0.0 && at < SMALL) { atomicAdd(&doubts, 1u); }
    let w = weigh(d, plan);
    let before = atomicAdd(&low[part_at(at)], w.y);
    atomicAdd(&high[part_at(at)], w.x + select(0u, 1u, before + w.y < before));
}

fn keep(d: f32, index: u32, plan: Plan) {
    let at = atomicAdd(&kept, 1u);
    let w = weigh(d, plan);
    if (at < FEW) { few[at] = vec4<u32>(bitcast<u32>(d), index, w.x, w.y); }
}

// Weigh the parts of the bin that was found, then keep the scores of one of them.
fn look(index: u32, bits: u32, d: f32, plan: Plan, turn: u32) {
    let at = d * plan.fold;
    if (bin_of(at) != found[0]) { return; }
    if (turn == WEIGH) { weigh_part(d, plan); }
    if (turn == KEEP && part_at(at) == part[0]) { keep(d, index, plan); }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let row = group.y;
    let plan = plan_of(row);
    let rank = largest_of(row, lid).x;
    let top = bitcast<f32>(bits_of(rank));
    let wanted_here = usable(rank) && plan.top_k == 0u && (plan.flags & BY_WEIGHT) != 0u;
    let whole = find_bin(row, plan.top_p, 0u, lid);
    let goal = part_of(whole, plan.top_p);
    let doubt = margin(whole);
    if (lid == 0u) {
        atomicStore(&kept, 0u);
        atomicStore(&doubts, 0u);
        cut[2] = DOUBTFUL;
        part[0] = PARTS;
        if (!wanted_here) { found[0] = BINS; }
    }
    atomicStore(&low[lid], 0u);
    atomicStore(&high[lid], 0u);
    workgroupBarrier();
    let bin = found[0];
    if (bin < BINS) { walk(row, top, plan, WEIGH, lid); }
    workgroupBarrier();
    let own = vec2<u32>(atomicLoad(&high[lid]), atomicLoad(&low[lid]));
    let base = vec2<u32>(found[1], found[2]);
    let after = sum_of(base, running_sum(own, lid)[0]);
    let before = difference(after, own);
    if (less_than(before, goal) && !less_than(after, goal)) {
        part[0] = lid;
        part[1] = before.x;
        part[2] = before.y;
    }
    workgroupBarrier();
    if (bin < BINS) { walk(row, top, plan, KEEP, lid); }
    workgroupBarrier();
    let left = atomicLoad(&kept);
    let certain = left <= FEW && atomicLoad(&doubts) == 0u;
    if (lid < left && certain) {
        let mine = few[lid];
        var above = vec2<u32>(part[1], part[2]);
        var earlier = 0u;
        var equal = 0u;
        //@rounds FEW
        for (var i = 0u; i < left; i++) {
            let other = few[i];
            if (other.x < mine.x) { above = sum_of(above, other.zw); }
            if (other.x == mine.x) {
                equal += 1u;
                earlier += select(0u, 1u, other.y < mine.y);
            }
        }
        // Of equals, so many as reach the goal.
        var reached = above;
        var wanted = 0u;
        //@rounds FEW
        while (wanted < equal && less_than(reached, goal)) {
            reached = sum_of(reached, mine.zw);
            wanted += 1u;
        }
        if (wanted == earlier + 1u && !less_than(reached, goal)) {
            cut[0] = mine.x;
            cut[1] = mine.y;
            cut[2] = select(USABLE, DOUBTFUL, near(reached, goal, doubt) || near(difference(reached, mine.zw), goal, doubt));
        }
    }
    workgroupBarrier();
    if (lid == 0u && plan.top_k == 0u) {
        var result = vec4<u32>(cut[0], cut[1], cut[2], 0u);
        if ((plan.flags & BY_WEIGHT) == 0u || (cut[2] == USABLE && cut[0] > plan.deepest)) {
            result = vec4<u32>(plan.deepest, ALL, USABLE, 0u);
        }
        cuts[row] = result;
    }
}
