// y = softmax(x / TEMPERATURE) over each row; a workgroup a row. A row of -inf throughout gives zeros, one with NaN or +inf
// gives NaN, also where the quotient is what overflows.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, STRIDE)
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // (rows, STRIDE)

const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;

// e^(v - top) for v up to top; nothing is taken of an infinity.
fn weight(v: f32, top: f32) -> f32 {
    return select(exp(max(v, LOWEST) - top), 0.0, bitcast<u32>(v) == 0xff800000u);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE;
    var top = LOWEST;
    var odd = 0.0;
    for (var i = lid; i < WIDTH; i += WG) {
        let v = x[start + i] / TEMPERATURE;
        let bits = bitcast<u32>(v);  // comparisons with NaN may be optimised away
        if (bits == 0x7f800000u || (bits & 0x7fffffffu) > 0x7f800000u) { odd = 1.0; }
        top = max(top, v);
    }
    top = team_max(top, lid, WG);
    odd = team_max(odd, lid, WG);
    var sum = 0.0;
    for (var i = lid; i < WIDTH; i += WG) { sum += weight(x[start + i] / TEMPERATURE, top); }
    sum = max(team_sum(sum, lid, WG), SMALLEST_NORMAL);
    for (var i = lid; i < WIDTH; i += WG) {
        let p = weight(x[start + i] / TEMPERATURE, top) / sum;
        var quiet = 0x7fc00000u;  // a variable, because no constant may be NaN
        y[start + i] = select(p, bitcast<f32>(quiet), odd > 0.0);
    }
}
