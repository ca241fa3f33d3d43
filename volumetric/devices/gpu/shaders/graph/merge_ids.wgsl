// WAYS neighbouring runs of `length` sorted ids become one. An id's place is the number of ids that come before it, which
// a binary search finds in each of the runs: of equal ids those of earlier runs do.
struct Dims { count: u32, length: u32, steps: u32 }

@group(0) @binding(0) var<storage, read> runs: array<vec2<u32>>;
@group(0) @binding(1) var<storage, read_write> sorted: array<vec2<u32>>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let own = runs[at];
    let run = at / dims.length;
    let first = run / WAYS * WAYS;
    let some = min(WAYS, (dims.count - 1u) / dims.length + 1u - first);
    var place = first * dims.length + at % dims.length;
    //@rounds WAYS
    for (var other = first; other < first + some; other++) {
        if (other == run) { continue; }
        let start = other * dims.length;
        var low = start;
        var high = start + min(dims.length, dims.count - start);
        for (var s = 0u; s < dims.steps; s++) {
            if (low == high) { break; }
            let middle = (low + high) / 2u;
            let id = runs[middle].x;
            let before = id < own.x || (id == own.x && other < run);
            low = select(low, middle + 1u, before);
            high = select(middle, high, before);
        }
        place += low - start;
    }
    sorted[place] = own;
}
