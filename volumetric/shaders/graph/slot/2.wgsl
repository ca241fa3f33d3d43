@group(0) @binding(4) var<storage, read_write> slot_2: array<f32>;
