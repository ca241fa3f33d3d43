// Sums and maxima over aligned teams of `size` neighbouring invocations (a power of two), through workgroup memory alone:
// for devices without subgroups. The same functions as reduce_subgroup. Every invocation of the workgroup must call.
var<workgroup> team_scratch: array<f32, WG>;

fn team_sum(value: f32, lid: u32, size: u32) -> f32 {
    if (size == 1u) { return value; }
    team_scratch[lid] = value;
    workgroupBarrier();
    for (var step = size / 2u; step > 0u; step = step / 2u) {
        if (lid % size < step) { team_scratch[lid] += team_scratch[lid + step]; }
        workgroupBarrier();
    }
    let total = team_scratch[lid - lid % size];
    workgroupBarrier();
    return total;
}

fn team_max(value: f32, lid: u32, size: u32) -> f32 {
    if (size == 1u) { return value; }
    team_scratch[lid] = value;
    workgroupBarrier();
    for (var step = size / 2u; step > 0u; step = step / 2u) {
        if (lid % size < step) { team_scratch[lid] = max(team_scratch[lid], team_scratch[lid + step]); }
        workgroupBarrier();
    }
    let total = team_scratch[lid - lid % size];
    workgroupBarrier();
    return total;
}

// Sums of BATCH equal parts of a workgroup in two halves around a barrier that the kernel needs anyway. They have memory of
// their own: team sums may begin before the slowest invocation has read it.
var<workgroup> published: array<f32, WG>;

fn publish(value: f32, lid: u32) {
    published[lid] = value;
}

fn published_sum(part: u32) -> f32 {
    var total = 0.0;
    for (var i = 0u; i < WG / BATCH; i++) { total += published[part * (WG / BATCH) + i]; }
    return total;
}
