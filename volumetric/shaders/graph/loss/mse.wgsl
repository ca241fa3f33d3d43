// (y - t)^2
fn term(y: f32, t: f32) -> vec2<f32> { return vec2<f32>((y - t) * (y - t), 2.0 * (y - t)); }
