fn slope(y: f32) -> f32 { return 1.0 - y * y; }
