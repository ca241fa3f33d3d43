// Four neighbours in memory of the right side, (k, n) or (n, k) with TRANS_B, whose rows are whole vectors.
@group(0) @binding(1) var<storage, read> b: array<vec4<f32>>;

fn right_group() -> u32 { return dims.k * dims.n; }

fn right_four(start: u32, k: u32, n: u32) -> vec4<f32> {
    let along = select(min(k, dims.k - 1u) * dims.n + min(n, dims.n - 4u), min(n, dims.n - 1u) * dims.k + min(k, dims.k - 4u), TRANS_B);
    return select(vec4<f32>(0.0), b[(start + along) / 4u], k < dims.k);
}
