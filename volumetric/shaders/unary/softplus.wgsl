fn apply(x: f32) -> f32 { return positive(x) + log_of_one_plus(exponential(-abs(x))); }
