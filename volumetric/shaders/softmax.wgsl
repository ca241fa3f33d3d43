// y = softmax(x / TEMPERATURE) over each row; a workgroup a row. Entries at or below LOWEST (masked) get 0; a row that is
// masked throughout is 0, one with NaN or +inf is NaN.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, STRIDE)
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // (rows, STRIDE)

const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE;
    var top = LOWEST;
    var odd = 0.0;
    for (var i = lid; i < WIDTH; i += WG) {
        let bits = bitcast<u32>(x[start + i]);  // comparisons with NaN may be optimised away
        if (bits == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f800000u) { odd = 1.0; }
        top = max(top, x[start + i]);
    }
    top = team_max(top, lid, WG);
    odd = team_max(odd, lid, WG);
    var sum = 0.0;
    for (var i = lid; i < WIDTH; i += WG) {
        let v = x[start + i];
        if (v > LOWEST) { sum += exp((v - top) / TEMPERATURE); }
    }
    sum = max(team_sum(sum, lid, WG), SMALLEST_NORMAL);
    for (var i = lid; i < WIDTH; i += WG) {
        let v = x[start + i];
        var p = 0.0;
        if (v > LOWEST) { p = exp((v - top) / TEMPERATURE) / sum; }
        var quiet = 0x7fc00000u;  // a variable, because no constant may be NaN
        y[start + i] = select(p, bitcast<f32>(quiet), odd > 0.0);
    }
}
