// y = the sum of COUNT branches by their weights, FIRST … of the row's. Branches of weight 0 are skipped, whatever they
// hold: their kernels may not have run. Further launches add to the present sum.
@group(0) @binding(0) var<storage, read> weights: array<f32>;          // (rows, GATE_STRIDE)
@group(0) @binding(1) var<storage, read> branch_0: array<vec4<f32>>;   // (rows, WIDTH4)
@group(0) @binding(2) var<storage, read> branch_1: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> branch_2: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> branch_3: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;    // (rows, WIDTH4)

fn part(row: u32, number: u32, value: vec4<f32>) -> vec4<f32> {
    if (number >= COUNT) { return vec4<f32>(0.0); }
    let weight = weights[row * GATE_STRIDE + FIRST + number];
    return select(select(value, weight * value, WEIGHTED), vec4<f32>(0.0), (bitcast<u32>(weight) & 0x7fffffffu) == 0u);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let v = group.x * WG + lid;
    if (group.y >= ctl.rows || v >= WIDTH4) { return; }
    let at = group.y * WIDTH4 + v;
    var sum = vec4<f32>(0.0);
    if (FIRST > 0u) { sum = y[at]; }
    sum += part(group.y, 0u, branch_0[at]);
    sum += part(group.y, 1u, branch_1[at]);
    sum += part(group.y, 2u, branch_2[at]);
    sum += part(group.y, 3u, branch_3[at]);
    y[at] = sum;
}
