// Four neighbours in memory of the left side, (m, k) or (k, m) with TRANS_A, one by one.
@group(0) @binding(0) var<storage, read> a: array<f32>;

fn left_four(start: u32, m: u32, k: u32) -> vec4<f32> {
    var r: vec4<f32>;
    //@unroll
    for (var j = 0u; j < 4u; j++) {
        let row = min(m + select(j, 0u, !TRANS_A), dims.m - 1u);
        let at = k + select(j, 0u, TRANS_A);
        let column = min(at, dims.k - 1u);
        let v = a[start + select(row * dims.k + column, column * dims.m + row, TRANS_A)];
        r[j] = select(0.0, v, at < dims.k);
    }
    return r;
}
