// y[o] = scale * join of admit(x) over the reduced axes. Kept and reduced indices each run over up to 4 axes with strides
// in x. COLUMNS: neighbouring invocations take neighbouring outputs, because those lie together in memory, and WG / OUTS of
// them share an output; otherwise TEAM = WG / OUTS neighbours share one. Reduced elements beyond a chunk belong to other
// workgroups: y then holds `splits` partial results, one below the other, for a second launch.
struct Dims {
    outs: u32, count: u32, chunk: u32, splits: u32,
    scale: vec4<f32>,
    kept_size: vec4<u32>, kept_stride: vec4<u32>,
    reduced_size: vec4<u32>, reduced_stride: vec4<u32>,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

const TEAM: u32 = WG / OUTS;
var<workgroup> joined: array<f32, WG>;

fn kept_at(o: u32) -> u32 {
    var rest = o;
    var at = 0u;
    //@unroll
    for (var axis = 1u; axis < KEPT; axis++) {
        at += rest % dims.kept_size[KEPT - axis] * dims.kept_stride[KEPT - axis];
        rest = rest / dims.kept_size[KEPT - axis];
    }
    return at + rest * dims.kept_stride[0];
}

fn reduced_at(r: u32) -> u32 {
    var rest = r;
    var at = 0u;
    //@unroll
    for (var axis = 1u; axis < REDUCED; axis++) {
        at += rest % dims.reduced_size[REDUCED - axis] * dims.reduced_stride[REDUCED - axis];
        rest = rest / dims.reduced_size[REDUCED - axis];
    }
    return at + rest * dims.reduced_stride[0];
}

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
        for (var j = 0u; j < 4u; j++) { found[j] = join(found[j], admit(x[start + reduced_at(r + j * TEAM)])); }
    }
    //@rounds 4
    for (; r < stop; r += TEAM) { found[0] = join(found[0], admit(x[start + reduced_at(r)])); }
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
