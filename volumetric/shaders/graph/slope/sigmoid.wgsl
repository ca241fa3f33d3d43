fn slope(y: f32) -> f32 { return y * (1.0 - y); }
