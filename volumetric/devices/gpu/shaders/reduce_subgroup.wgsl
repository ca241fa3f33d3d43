// Sums and maxima over aligned teams of `size` neighbouring invocations (a power of two), subgroup version: lanes below
// SUBGROUP exchange directly, wider teams meet once in workgroup memory. Every invocation of the workgroup must call.
var<workgroup> team_scratch: array<f32, WG / SUBGROUP + 1u>;

fn lane_sum(value: f32, size: u32) -> f32 {
    var v = value;
    if (size > 1u && SUBGROUP > 1u) { v += subgroupShuffleXor(v, 1u); }
    if (size > 2u && SUBGROUP > 2u) { v += subgroupShuffleXor(v, 2u); }
    if (size > 4u && SUBGROUP > 4u) { v += subgroupShuffleXor(v, 4u); }
    if (size > 8u && SUBGROUP > 8u) { v += subgroupShuffleXor(v, 8u); }
    if (size > 16u && SUBGROUP > 16u) { v += subgroupShuffleXor(v, 16u); }
    if (size > 32u && SUBGROUP > 32u) { v += subgroupShuffleXor(v, 32u); }
    return v;
}

fn lane_max(value: f32, size: u32) -> f32 {
    var v = value;
    if (size > 1u && SUBGROUP > 1u) { v = max(v, subgroupShuffleXor(v, 1u)); }
    if (size > 2u && SUBGROUP > 2u) { v = max(v, subgroupShuffleXor(v, 2u)); }
    if (size > 4u && SUBGROUP > 4u) { v = max(v, subgroupShuffleXor(v, 4u)); }
    if (size > 8u && SUBGROUP > 8u) { v = max(v, subgroupShuffleXor(v, 8u)); }
    if (size > 16u && SUBGROUP > 16u) { v = max(v, subgroupShuffleXor(v, 16u)); }
    if (size > 32u && SUBGROUP > 32u) { v = max(v, subgroupShuffleXor(v, 32u)); }
    return v;
}

fn team_sum(value: f32, lid: u32, size: u32) -> f32 {
    let v = lane_sum(value, size);
    if (size <= SUBGROUP) { return v; }
    if (lid % SUBGROUP == 0u) { team_scratch[lid / SUBGROUP] = v; }
    workgroupBarrier();
    let first = (lid / size) * (size / SUBGROUP);
    var total = 0.0;
    for (var i = 0u; i < size / SUBGROUP; i++) { total += team_scratch[first + i]; }
    workgroupBarrier();
    return total;
}

fn team_max(value: f32, lid: u32, size: u32) -> f32 {
    let v = lane_max(value, size);
    if (size <= SUBGROUP) { return v; }
    if (lid % SUBGROUP == 0u) { team_scratch[lid / SUBGROUP] = v; }
    workgroupBarrier();
    let first = (lid / size) * (size / SUBGROUP);
    var total = LOWEST;
    for (var i = 0u; i < size / SUBGROUP; i++) { total = max(total, team_scratch[first + i]); }
    workgroupBarrier();
    return total;
}

// Sums of BATCH equal parts of a workgroup in two halves around a barrier that the kernel needs anyway. They have memory of
// their own: team sums may begin before the slowest invocation has read it.
var<workgroup> published: array<f32, WG / min(SUBGROUP, WG / BATCH) + 1u>;

fn publish(value: f32, lid: u32) {
    let each = min(SUBGROUP, WG / BATCH);
    let v = lane_sum(value, each);
    if (lid % each == 0u) { published[lid / each] = v; }
}

fn published_sum(part: u32) -> f32 {
    let count = WG / BATCH / min(SUBGROUP, WG / BATCH);
    var total = 0.0;
    for (var i = 0u; i < count; i++) { total += published[part * count + i]; }
    return total;
}
