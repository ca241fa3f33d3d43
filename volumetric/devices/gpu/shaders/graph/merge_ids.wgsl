// WAYS neighbouring runs of `length` sorted ids become one. An id's place is the number of ids that come before it: in its
// own run those ahead of it, and in each of the others as many as a binary search finds; of equal ids those of earlier runs
// come before. WAYS invocations share an id, so that all its searches run at once: each step of one waits for memory.
struct Dims { count: u32, length: u32, steps: u32 }

@group(0) @binding(0) var<storage, read> runs: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> sorted: array<vec2<u32>>;
@group(0) @binding(13) var<uniform> dims: Dims;

const IDS: u32 = WG / WAYS;
var<workgroup> before: array<atomic<u32>, IDS>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let mine = lid / WAYS;
    let at = flat_group(group, groups) * IDS + mine;
    let own = runs[min(at, dims.count - 1u)];
    let run = at / dims.length;
    let first = run / WAYS * WAYS;
    let other = first + lid % WAYS;
    let start = other * dims.length;
    if (lid % WAYS == 0u) { atomicStore(&before[mine], 0u); }
    workgroupBarrier();
    if (at < dims.count && other == run) { atomicAdd(&before[mine], at - start); }
    if (at < dims.count && other != run && start < dims.count) {
        var low = start;
        var high = start + min(dims.length, dims.count - start);
        for (var s = 0u; s < dims.steps; s++) {
            if (low == high) { break; }
            let middle = (low + high) / 2u;
            let id = runs[middle].x;
            let precedes = id < own.x || (id == own.x && other < run);
            low = select(low, middle + 1u, precedes);
            high = select(middle, high, precedes);
        }
        atomicAdd(&before[mine], low - start);
    }
    workgroupBarrier();
    if (at < dims.count && other == first) { sorted[first * dims.length + atomicLoad(&before[mine])] = own; }
}
