// A draw among the k largest scores of a row, the first of equals: a workgroup a row compares each with each.
var<workgroup> held: atomic<u32>;
var<workgroup> scores: array<vec2<u32>, ROOM>;  // rank, index
var<workgroup> weights: array<vec2<u32>, ROOM>;
var<workgroup> answer: array<u32, 4>;
var<workgroup> doubts: atomic<u32>;
const SMALL: f32 = 0x1p-16;

fn depth_at(i: u32, top: f32) -> u32 {
    return bitcast<u32>(depth(top, bits_of(scores[i].x)));
}

// Its weight, if top-p and min-p leave it.
fn left_at(i: u32, top: f32) -> vec2<u32> {
    let d = depth_at(i, top);
    let drawn = d < answer[0] || (d == answer[0] && scores[i].y <= answer[1]);
    return select(vec2<u32>(0u), weights[i], drawn);
}

// Hold the scores up to a bin, as many as there is room for.
fn look(index: u32, bits: u32, d: f32, plan: Plan, last: u32) {
    if (bin_of(d * plan.fold) > last) { return; }
    let at = atomicAdd(&held, 1u);
    if (at < ROOM) { scores[at] = vec2<u32>(rank_of(bits), index); }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let row = group.y;
    let plan = plan_of(row);
    let rank = largest_of(row, lid).x;
    let top = bitcast<f32>(bits_of(rank));
    let by_weight = (plan.flags & BY_WEIGHT) != 0u;
    find_bin(row, vec2<u32>(0u), max(plan.top_k, 1u), lid);
    if (lid == 0u) {
        answer[0] = plan.deepest;
        answer[1] = ALL;
        answer[2] = select(USABLE, DOUBTFUL, by_weight);
        answer[3] = DOUBTFUL;
        atomicStore(&doubts, 0u);
        atomicStore(&held, 0u);
        if (!usable(rank) || plan.top_k == 0u) { found[0] = BINS; }
    }
    workgroupBarrier();
    let last = found[0];
    if (last < BINS) { walk(row, top, plan, last, lid); }
    workgroupBarrier();
    let count = min(atomicLoad(&held), ROOM);
    let certain = atomicLoad(&held) <= ROOM && found[0] < BINS;
    //@rounds ROOM / WG
    for (var i = lid; i < count; i += WG) {
        let mine = scores[i];
        var before = 0u;
        //@rounds ROOM
        for (var j = 0u; j < count; j++) {
            let other = scores[j];
            before += select(0u, 1u, other.x > mine.x || (other.x == mine.x && other.y < mine.y));
        }
        let d = depth(top, bits_of(mine.x));
        if (by_weight && d > 0.0 && d * plan.fold < SMALL) { atomicAdd(&doubts, 1u); }
        var w = vec2<u32>(0u);
        if (before < plan.top_k) { w = weigh(d, plan); }
        weights[i] = w;
    }
    workgroupBarrier();
    var whole = vec2<u32>(0u);
    //@rounds ROOM
    for (var j = 0u; j < count; j++) { whole = sum_of(whole, weights[j]); }
    let goal = part_of(whole, plan.top_p);
    if (by_weight && certain && atomicLoad(&doubts) == 0u) {
        //@rounds ROOM / WG
        for (var i = lid; i < count; i += WG) {
            let mine = depth_at(i, top);
            let w = weights[i];
            if (w.x == 0u && w.y == 0u) { continue; }
            var above = vec2<u32>(0u);
            var earlier = 0u;
            var equal = 0u;
            //@rounds ROOM
            for (var j = 0u; j < count; j++) {
                let other = depth_at(j, top);
                if (other < mine) { above = sum_of(above, weights[j]); }
                if (other == mine && (weights[j].x | weights[j].y) != 0u) {
                    equal += 1u;
                    earlier += select(0u, 1u, scores[j].y < scores[i].y);
                }
            }
            var reached = above;
            var wanted = 0u;
            //@rounds ROOM
            while (wanted < equal && less_than(reached, goal)) {
                reached = sum_of(reached, w);
                wanted += 1u;
            }
            if (wanted == earlier + 1u && !less_than(reached, goal)) {
                let doubt = margin(whole);
                if (mine <= plan.deepest) {
                    answer[0] = mine;
                    answer[1] = scores[i].y;
                }
                answer[2] = select(USABLE, DOUBTFUL, near(reached, goal, doubt) || near(difference(reached, w), goal, doubt));
            }
        }
    }
    workgroupBarrier();
    var rest = vec2<u32>(0u);
    //@rounds ROOM
    for (var j = 0u; j < count; j++) { rest = sum_of(rest, left_at(j, top)); }
    let point = part_of(rest, number_at(row, row_place(row).x));
    let doubt = margin(rest);
    if (certain && answer[2] == USABLE) {
        //@rounds ROOM / WG
        for (var i = lid; i < count; i += WG) {
            var before = vec2<u32>(0u);
            //@rounds ROOM
            for (var j = 0u; j < count; j++) {
                if (scores[j].y < scores[i].y) { before = sum_of(before, left_at(j, top)); }
            }
            let after = sum_of(before, left_at(i, top));
            if (!less_than(point, before) && less_than(point, after) && !near(point, before, doubt) && !near(point, after, doubt)) {
                answer[3] = DECIDED;
                cuts[row] = vec4<u32>(0u, 0u, DECIDED, scores[i].y);
            }
        }
    }
    workgroupBarrier();
    if (lid == 0u && plan.top_k > 0u && answer[3] != DECIDED) { cuts[row] = vec4<u32>(0u, 0u, DOUBTFUL, 0u); }
}
