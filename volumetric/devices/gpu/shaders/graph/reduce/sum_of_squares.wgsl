fn identity() -> f32 { return 0.0; }
fn join(a: f32, b: f32) -> f32 { return a + b; }
fn admit(x: f32) -> f32 { return x * x; }
