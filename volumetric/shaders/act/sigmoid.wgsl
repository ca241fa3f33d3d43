fn act(x: f32) -> f32 { return stable_sigmoid(x); }
