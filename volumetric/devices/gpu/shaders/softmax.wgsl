// y = softmax(x) over each row; a workgroup a row. A row of -inf throughout gives zeros, one with NaN or +inf gives NaN.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, STRIDE)
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // (rows, STRIDE)

const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE;
    var top = LOWEST;
    var odd = 0.0;
    for (var i = lid; i < WIDTH; i += WG) {
        let v = x[start + i];
        if (is_odd(v)) { odd = 1.0; } else { top = max(top, v); }
    }
    top = team_max(top, lid, WG);
    odd = team_max(odd, lid, WG);
    var sum = 0.0;
    for (var i = lid; i < WIDTH; i += WG) { sum += exponential(x[start + i] - top); }
    sum = max(team_sum(sum, lid, WG), SMALLEST_NORMAL);
    for (var i = lid; i < WIDTH; i += WG) {
        y[start + i] = select(exponential(x[start + i] - top) / sum, nan(), odd > 0.0);
    }
}
