// y[o] = scale * join of admit(element) over the reduced axes, of a tensor or of a formula. COLUMNS: neighbouring invocations
// take neighbouring outputs, because those lie together in memory, and WG / OUTS of them share an output; otherwise
// TEAM = WG / OUTS neighbours share one. Reduced elements beyond a chunk belong to other workgroups: y then holds `splits`
// partial results, one below the other, for a second launch.
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

const TEAM: u32 = WG / OUTS;
var<workgroup> joined: array<f32, WG>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    let blocks = (dims.outs + OUTS - 1u) / OUTS;
    let split = id / blocks;
    let begin = id % blocks * OUTS;
    if (is_idle(begin, min(begin + OUTS, dims.outs))) { return; }
    let out = select(lid / TEAM, lid % OUTS, COLUMNS);
    let lane = select(lid % TEAM, lid / OUTS, COLUMNS);
    let o = id % blocks * OUTS + out;
    let start = kept_at(min(o, dims.outs - 1u));
    let stop = min(dims.count, (split + 1u) * dims.chunk);
    var found: array<f32, 4>;
    //@unroll
    for (var j = 0u; j < 4u; j++) { found[j] = identity(); }
    var r = split * dims.chunk + lane;
    //@rounds dims.chunk / (4 * TEAM) + 1
    for (; r + 3u * TEAM < stop; r += 4u * TEAM) {
        //@unroll
        for (var j = 0u; j < 4u; j++) { found[j] = join(found[j], admit(element(start, reduced_at(r + j * TEAM)))); }
    }
    //@rounds 4
    for (; r < stop; r += TEAM) { found[0] = join(found[0], admit(element(start, reduced_at(r)))); }
    joined[out * TEAM + lane] = join(join(found[0], found[1]), join(found[2], found[3]));
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step = step / 2u) {
        let mine = lid / step;
        if (lid < OUTS * step) {
            let at = mine * TEAM + lid % step;
            joined[at] = join(joined[at], joined[at + step]);
        }
        workgroupBarrier();
    }
    let mine = id % blocks * OUTS + lid;
    if (lid < OUTS && mine < dims.outs && split < dims.splits) {
        y[split * dims.outs + mine] = dims.scale.x * joined[lid * TEAM];
    }
}
