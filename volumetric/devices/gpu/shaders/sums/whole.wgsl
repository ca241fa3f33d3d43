// The sums of a matvec over its teams; every invocation gets all of them.
fn write_sums(sums: Sums, lid: u32, unit: u32, share: Share) {
    var acc = sums;
    //@unroll
    for (var b = 0u; b < BATCH; b++) {
        let scale = norm_scale(b);
        //@unroll
        for (var r = 0u; r < VALUES; r++) { acc[b * VALUES + r] = scale * team_sum(acc[b * VALUES + r], lid, TEAM); }
    }
    // Each writes those of its turns.
    //@unroll
    for (var t = 0u; t < (OUTPUTS + TEAM - 1u) / TEAM; t++) {
        let e = t * TEAM + lid % TEAM;
        var gate = 0.0;
        var up = 0.0;
        //@unroll
        for (var c = 0u; c < min(TEAM, OUTPUTS); c++) {
            if (lid % TEAM == c) {
                gate = acc[min(t * TEAM + c, OUTPUTS - 1u) * PARTS];
                up = acc[min(t * TEAM + c, OUTPUTS - 1u) * PARTS + PARTS - 1u];
            }
        }
        let n = unit + e % ROWS;
        let row = share.first + e / ROWS;
        if (e < OUTPUTS && n < UNITS && row < share.end) { finish(row, FIRST + n, share.matrix, gate, up); }
    }
}
