fn act(x: f32) -> f32 { return x * stable_sigmoid(x); }
