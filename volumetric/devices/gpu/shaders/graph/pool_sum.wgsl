// The sum of each window of images; nothing lies outside of them. TEAM neighbouring invocations share a window, and each reads
// CHUNK of its taps at once.
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;

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
    var sum = 0.0;
    for (var t = lane; t < TAPS; t += TEAM * CHUNK) {
        var v: array<f32, CHUNK>;
        //@unroll
        for (var c = 0u; c < CHUNK; c++) {
            let i = start + DILATION * tap_place(t + c * TEAM);
            let inside = t + c * TEAM < TAPS && all(i < dims.size.xyz);
            v[c] = select(0.0, x[first + select(0u, join3(i, dims.size), inside)], inside);
        }
        //@unroll
        for (var c = 0u; c < CHUNK; c++) { sum += v[c]; }
    }
    if (TEAM > 1u) { sum = team_sum(sum, lid, TEAM); }
    if (lane == 0u && at < dims.count) { y[at] = sum; }
}
