fn act(x: f32) -> f32 { let r = select(x, 0.0, x < 0.0); return r * r; }
