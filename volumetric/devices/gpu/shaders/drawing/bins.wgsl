// How much weight the scores of a row have by how far they are below its largest; with top-k, how many they are.
@group(0) @binding(3) var<storage, read_write> binned: array<vec2<u32>>;  // (rows, GROUPS, BINS)

var<workgroup> low: array<atomic<u32>, BINS>;
var<workgroup> high: array<atomic<u32>, BINS>;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let plan = plan_of(group.y);
    let rank = largest_of(group.y, lid).x;
    let top = bitcast<f32>(bits_of(rank));
    for (var b = lid; b < BINS; b += WG) {
        atomicStore(&low[b], 0u);
        atomicStore(&high[b], 0u);
    }
    workgroupBarrier();
    if (usable(rank) && (plan.top_k > 0u || (plan.flags & BY_WEIGHT) != 0u)) {
        for (var v = group.x * WG + lid; v < VECTORS; v += GROUPS * WG) {
            let four = x[group.y * VECTORS + v];
            for (var i = 0u; i < 4u; i++) {
                let d = depth(top, four[i]);
                if (4u * v + i >= WIDTH || bitcast<u32>(d) > 0x7f7fffffu) { continue; }
                let b = bin_of(d * plan.fold);
                if (plan.top_k > 0u) {
                    atomicAdd(&low[b], 1u);
                    continue;
                }
                let w = weigh(d, plan);
                let before = atomicAdd(&low[b], w.y);
                atomicAdd(&high[b], w.x + select(0u, 1u, before + w.y < before));
            }
        }
    }
    workgroupBarrier();
    for (var b = lid; b < BINS; b += WG) {
        binned[(group.y * GROUPS + group.x) * BINS + b] = vec2<u32>(atomicLoad(&high[b]), atomicLoad(&low[b]));
    }
}
