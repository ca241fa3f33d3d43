// Each invocation of GROUPS groups has a run of scores that follow one another.
const EACH: u32 = (VECTORS + GROUPS * WG - 1u) / (GROUPS * WG);  // vectors of a run

// Bits of the largest depth that is drawn, and the index of the last score that has it and is drawn.
fn cut_of(row: u32, plan: Plan, found: vec4<u32>) -> vec2<u32> {
    if ((plan.flags & BY_WEIGHT) == 0u) { return vec2<u32>(plan.deepest, ALL); }
    return found.xy;
}

// The weight of a score that is drawn, else 0.
fn drawn_weight(top: f32, bits: u32, index: u32, plan: Plan, cut: vec2<u32>) -> vec2<u32> {
    let d = depth(top, bits);
    let at = bitcast<u32>(d);
    if (index >= WIDTH || at > cut.x || (at == cut.x && index > cut.y)) { return vec2<u32>(0u); }
    return weigh(d, plan);
}

fn run_sum(row: u32, top: f32, run: u32, plan: Plan, cut: vec2<u32>) -> vec2<u32> {
    var sum = vec2<u32>(0u);
    for (var j = 0u; j < EACH; j++) {
        let v = run * EACH + j;
        if (v >= VECTORS) { break; }
        let four = x[row * VECTORS + v];
        //@unroll
        for (var i = 0; i < 4; i++) { sum = sum_of(sum, drawn_weight(top, four[i], 4u * v + u32(i), plan, cut)); }
    }
    return sum;
}
