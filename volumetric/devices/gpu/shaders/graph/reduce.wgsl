// y[o] = scale * join of admit(element) over the reduced axes, of a tensor or of a formula. COLUMNS: neighbouring invocations
// take neighbouring outputs, because those lie together in memory, and WG / OUTS of them share an output; otherwise
// TEAM = WG / OUTS neighbours share one. Each reads DEPTH elements at once. Reduced elements beyond a chunk belong to other
// workgroups: y then holds `splits` partial results, one below the other, for a second launch.
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
    var found: array<f32, DEPTH>;
    //@unroll
    for (var j = 0u; j < DEPTH; j++) { found[j] = identity(); }
    //@rounds dims.chunk / (DEPTH * TEAM) + 1
    for (var r = split * dims.chunk + lane; r < stop; r += DEPTH * TEAM) {
        var value: array<f32, DEPTH>;
        //@unroll
        for (var j = 0u; j < DEPTH; j++) { value[j] = admit(element(start, reduced_at(min(r + j * TEAM, stop - 1u)))); }
        //@unroll
        for (var j = 0u; j < DEPTH; j++) { found[j] = join(found[j], select(identity(), value[j], r + j * TEAM < stop)); }
    }
    var all = found[0];
    //@unroll
    for (var j = 1u; j < DEPTH; j++) { all = join(all, found[j]); }
    joined[out * TEAM + lane] = all;
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
