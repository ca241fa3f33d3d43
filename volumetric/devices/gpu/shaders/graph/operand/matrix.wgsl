// The right side of a product as it lies in memory: (k, n), or (n, k) with TRANS_B.
fn right_group() -> u32 { return dims.k * dims.n; }

fn right(start: u32, k: u32, n: u32) -> f32 { return b[start + select(k * dims.n + n, n * dims.k + k, TRANS_B)]; }
