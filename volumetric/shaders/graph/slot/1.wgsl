@group(0) @binding(3) var<storage, read_write> slot_1: array<f32>;
