// y = softmax(x / TEMPERATURE) over each row; a workgroup a row. A row of -inf throughout gives zeros, one with NaN or +inf
// gives NaN, also where the quotient is what overflows. The greatest is subtracted before dividing: a driver may round
// x / TEMPERATURE in one place and not in another, and the largest exponent would not be 0.
@group(0) @binding(0) var<storage, read> x: array<f32>;        // (rows, STRIDE)
@group(0) @binding(1) var<storage, read_write> y: array<f32>;  // (rows, STRIDE)

const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;

fn term(v: f32, top: f32) -> f32 { return select(exponential((v - top) / TEMPERATURE), 0.0, is_lost(v / TEMPERATURE)); }

fn is_lost(quotient: f32) -> bool { return bitcast<u32>(quotient) == 0xff800000u; }  // -inf

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE;
    var top = LOWEST;
    var odd = 0.0;
    for (var i = lid; i < WIDTH; i += WG) {
        let v = x[start + i];
        let quotient = v / TEMPERATURE;
        if (is_odd(quotient)) { odd = 1.0; } else if (!is_lost(quotient)) { top = max(top, v); }
    }
    top = team_max(top, lid, WG);
    odd = team_max(odd, lid, WG);
    var sum = 0.0;
    for (var i = lid; i < WIDTH; i += WG) { sum += term(x[start + i], top); }
    sum = max(team_sum(sum, lid, WG), SMALLEST_NORMAL);
    for (var i = lid; i < WIDTH; i += WG) {
        y[start + i] = select(term(x[start + i], top) / sum, nan(), odd > 0.0);
    }
}
