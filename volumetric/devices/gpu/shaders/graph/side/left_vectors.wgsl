// Four neighbours in memory of the left side, (m, k) or (k, m) with TRANS_A, whose rows are whole vectors.
@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;

fn left_four(start: u32, m: u32, k: u32) -> vec4<f32> {
    let along = select(min(m, dims.m - 1u) * dims.k + min(k, dims.k - 4u), min(k, dims.k - 1u) * dims.m + min(m, dims.m - 4u), TRANS_A);
    return select(vec4<f32>(0.0), a[(start + along) / 4u], k < dims.k);
}
