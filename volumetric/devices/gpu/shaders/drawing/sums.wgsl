// The weight that each of GROUPS parts of a row has, of the scores that are drawn.
@group(0) @binding(4) var<storage, read> cuts: array<vec4<u32>>;         // (rows)
@group(0) @binding(5) var<storage, read_write> sums: array<vec2<u32>>;   // (rows, GROUPS)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let plan = plan_of(group.y);
    let rank = largest_of(group.y, lid).x;
    var own = vec2<u32>(0u);
    if (usable(rank) && (plan.flags & DRAWN) != 0u && plan.top_k == 0u) {
        own = run_sum(group.y, bitcast<f32>(bits_of(rank)), group.x * WG + lid, plan, cut_of(group.y, plan, cuts[group.y]));
    }
    running[lid] = own;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step = step / 2u) {
        if (lid < step) { running[lid] = sum_of(running[lid], running[lid + step]); }
        workgroupBarrier();
    }
    if (lid == 0u) { sums[group.y * GROUPS + group.x] = running[0]; }
}
