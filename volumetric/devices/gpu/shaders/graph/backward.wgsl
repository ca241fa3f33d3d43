fn result(x: f32, i: u32) -> f32 { return g[i] * slope(x); }
