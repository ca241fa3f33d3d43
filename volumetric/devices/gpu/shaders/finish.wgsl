// The end of a product of many rows: bias, activation or gate, factor of a stack, residual, soft cap.
fn apply4(v: vec4<f32>) -> vec4<f32> { return vec4<f32>(apply(v.x), apply(v.y), apply(v.z), apply(v.w)); }

// Write 4 outputs of row m of a matrix, vector n4 of the row; `up` counts for gated products only.
fn finish(m: u32, n4: u32, matrix: u32, gate: vec4<f32>, up: vec4<f32>) {
    var v = gate;
    let at = matrix * PARTS * N4 + n4;
    if (HAS_BIAS) { v += bias[at]; }
    if (PARTS == 2u) {
        var u = up;
        if (HAS_BIAS) { u += bias[at + N4]; }
        v = vec4<f32>(opened(v.x, u.x), opened(v.y, u.y), opened(v.z, u.z), opened(v.w, u.w));
    } else {
        v = apply4(v);
    }
    if (WEIGHTED) { v *= factor_of(m); }
    if (HAS_RESIDUAL) { v += residual_at(m * N4 + n4); }
    if (SOFTCAP > 0.0) {
        v = vec4<f32>(soft_cap(v.x, SOFTCAP), soft_cap(v.y, SOFTCAP), soft_cap(v.z, SOFTCAP), soft_cap(v.w, SOFTCAP));
    }
    y[m * N4 + n4] = v;
}
