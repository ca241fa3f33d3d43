// The largest element of each window of images, and which tap it is: the first of equals; NaN is larger than all numbers.
// TEAM neighbouring invocations share a window, and each reads CHUNK of its taps at once.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> tap: array<f32>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * (WG / TEAM) + lid / TEAM;
    let lane = lid % TEAM;
    let own = min(at, dims.count - 1u);
    let image = own / dims.windows;
    let start = STRIDE * split3(own - image * dims.windows, dims.counts) - dims.before.xyz;  // wraps around below 0
    let first = image * (dims.size.x * dims.size.y * dims.size.z);
    var best = -infinity();
    var place = 0u;
    for (var t = lane; t < TAPS; t += TEAM * CHUNK) {
        var v: array<f32, CHUNK>;
        //@unroll
        for (var c = 0u; c < CHUNK; c++) {
            let i = start + DILATION * tap_place(t + c * TEAM);
            let inside = t + c * TEAM < TAPS && all(i < dims.size.xyz);
            v[c] = select(-infinity(), x[first + select(0u, join3(i, dims.size), inside)], inside);
        }
        //@unroll
        for (var c = 0u; c < CHUNK; c++) {
            let better = (is_nan(v[c]) || v[c] > best) && !is_nan(best);
            best = select(best, v[c], better);
            place = select(place, t + c * TEAM, better);
        }
    }
    if (TEAM > 1u) {
        // Of the invocations with the largest element, that with the lowest tap; taps are exact as floats up to 2^24.
        let odd = team_max(select(0.0, 1.0, is_nan(best)), lid, TEAM) > 0.0;
        let any = team_max(select(0.0, 1.0, best > -infinity()), lid, TEAM) > 0.0;
        let top = team_max(select(best, LOWEST, is_nan(best)), lid, TEAM);
        let is_top = select(best == top && any, is_nan(best), odd);
        let taps = -team_max(select(LOWEST, -f32(place), is_top), lid, TEAM);
        best = select(select(-infinity(), top, any), nan(), odd);
        place = select(0u, u32(taps), any || odd);
    }
    if (lane == 0u && at < dims.count) {
        y[at] = best;
        tap[at] = f32(place);
    }
}
