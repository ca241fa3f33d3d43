@group(0) @binding(3) var<storage, read_write> slot_1: array<f32>;
fn old_1(i: u32) -> f32 { return slot_1[i]; }
fn keep_1(i: u32, value: f32) { slot_1[i] = value; }
