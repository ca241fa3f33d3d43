// y = the sum of the experts' results of a row, in the order of slots, and of the residual.
@group(0) @binding(0) var<storage, read> routes: array<u32>;          // see group_rows
@group(0) @binding(1) var<storage, read> parts: array<vec4<f32>>;     // (PAIRS, WIDTH4), times their weights
@group(0) @binding(2) var<storage, read> residual: array<vec4<f32>>;  // (rows, WIDTH4)
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;   // (rows, WIDTH4)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let v = group.x * WG + lid;
    if (group.y >= ctl.rows || v >= WIDTH4) { return; }
    var sum = vec4<f32>(0.0);
    for (var s = 0u; s < SLOTS; s++) {
        let at = routes[2u * PAIRS + group.y * SLOTS + s];
        if (at < PAIRS) { sum += parts[at * WIDTH4 + v]; }
    }
    if (HAS_RESIDUAL) { sum += residual[group.y * WIDTH4 + v]; }
    y[group.y * WIDTH4 + v] = sum;
}
