fn act(x: f32) -> f32 { let r = max(x, 0.0); return r * r; }
