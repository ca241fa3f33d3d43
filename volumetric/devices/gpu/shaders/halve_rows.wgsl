// For each row of x, after its norm, halves for the matrix units: the row times a power of two with which its largest
// element is near 2^14, and the power of two that undoes it. So no row overflows, and its small elements keep their digits.
// There are TIMES rows of x for each row of the call. Rows are padded with zeros to STRIDE halves. A row with infinity or NaN
// keeps them, and is not scaled. With KEEP the rows after the norm are written, too.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;            // (rows, K4)
@group(0) @binding(1) var<storage, read_write> halved: array<vec2<u32>>;  // (rows, STRIDE / 4)
@group(0) @binding(2) var<storage, read_write> undo: array<f32>;          // (rows)
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;       // (rows, K4)
@group(0) @binding(4) var<storage, read> norm_params: array<vec4<f32>>;  // gain (K4), then bias (K4)

const K4: u32 = (K + 3u) / 4u;

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let row = group.y;
    if (row >= TIMES * ctl.rows) { return; }
    var mean = 0.0;
    var shift = 0.0;
    var factor = 1.0;
    if (NORM == 2u) {
        var sum = 0.0;
        for (var v = lid; v < K4; v += WG) { sum += dot(mask4(x[row * K4 + v], v, K), vec4<f32>(1.0)); }
        mean = team_sum(sum, lid, WG) / f32(K);
    }
    if (NORM != 0u) {
        var rest = 0.0;
        var squares = 0.0;
        for (var v = lid; v < K4; v += WG) {
            let d = mask4(x[row * K4 + v] - mean, v, K);
            rest += dot(d, vec4<f32>(1.0));
            squares += dot(d, d);
        }
        if (NORM == 2u) { shift = team_sum(rest, lid, WG) / f32(K); }
        factor = inverseSqrt(variance_about(team_sum(squares, lid, WG) / f32(K), shift) + EPS);
    }
    var top = 0u;
    for (var v = lid; v < K4; v += WG) { top = max(top, magnitude_bits(normed(row, v, mean, shift, factor))); }
    let powers = halving_powers(team_max(f32(top >> 23u), lid, WG));
    if (lid == 0u) { undo[row] = powers.y; }
    for (var v = lid; v < STRIDE / 4u; v += WG) {
        let own = normed(row, min(v, K4 - 1u), mean, shift, factor);
        if (KEEP) { if (v < K4) { y[row * K4 + v] = own; } }
        let r = select(vec4<f32>(0.0), powers.x * own, v < K4);
        halved[row * (STRIDE / 4u) + v] = vec2<u32>(pack2x16float(r.xy), pack2x16float(r.zw));
    }
}

fn normed(row: u32, v: u32, mean: f32, shift: f32, factor: f32) -> vec4<f32> {
    var r = x[row * K4 + v];
    if (NORM != 0u) {
        r = ((r - mean) - shift) * factor;
        if (HAS_NORM_WEIGHT) { r *= norm_params[v] + NORM_UNIT; }
        if (HAS_NORM_BIAS) { r += norm_params[K4 + v]; }
    }
    return mask4(r, v, K);
}
