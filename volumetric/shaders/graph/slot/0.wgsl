@group(0) @binding(2) var<storage, read_write> slot_0: array<f32>;
