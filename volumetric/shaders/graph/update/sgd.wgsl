fn moved(w: f32, g: f32, i: u32) -> f32 { return w - scalars[0] * (g + WEIGHT_DECAY * w); }
