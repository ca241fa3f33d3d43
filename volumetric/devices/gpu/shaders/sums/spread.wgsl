// The sums of a matvec over teams within a subgroup; each invocation gets an equal run of whole outputs. In every step
// a lane keeps one half of its sums and passes the other half to the lane that keeps it, so lanes exchange as many
// numbers in all as there are sums, not as many in each step. The order of summation is that of team_sum.
fn exchanged(low: f32, high: f32, upper: bool, lane: u32) -> f32 {
    return select(low, high, upper) + subgroupShuffleXor(select(high, low, upper), lane);
}

fn write_sums(sums: Sums, lid: u32, unit: u32, share: Share) {
    var v = sums;
    var first = 0u;
    //@unroll
    for (var s = 0u; s < 6u; s++) {
        if (TEAM > 1u << s) {
            let upper = (lid & (1u << s)) != 0u;
            const half = COUNT / (2u << s);
            first += select(0u, half, upper);
            //@unroll
            for (var i = 0u; i < COUNT / (2u << s); i++) { v[i] = exchanged(v[i], v[i + half], upper, 1u << s); }
        }
    }
    //@unroll
    for (var i = 0u; i < COUNT / TEAM / PARTS; i++) {
        let at = first + i * PARTS;
        let n = unit + at % VALUES / PARTS;
        let row = share.first + at / VALUES;
        let scale = norm_scale(at / VALUES);
        let gate = scale * v[i * PARTS];
        let up = scale * v[i * PARTS + PARTS - 1u];
        if (n < UNITS && row < share.end) { finish(row, FIRST + n, share.matrix, gate, up); }
    }
}
