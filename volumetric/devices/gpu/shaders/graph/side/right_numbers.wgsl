// Four neighbours of the right side, along n or, with TRANS_B, along k, one by one; `right` is a prelude.
@group(0) @binding(1) var<storage, read> b: array<f32>;

fn right_four(start: u32, k: u32, n: u32) -> vec4<f32> {
    var r: vec4<f32>;
    //@unroll
    for (var j = 0u; j < 4u; j++) {
        let at = k + select(0u, j, TRANS_B);
        let v = right(start, min(at, dims.k - 1u), min(n + select(j, 0u, TRANS_B), dims.n - 1u));
        r[j] = select(0.0, v, at < dims.k);
    }
    return r;
}
