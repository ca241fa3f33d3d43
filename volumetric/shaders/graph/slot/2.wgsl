@group(0) @binding(4) var<storage, read_write> slot_2: array<f32>;
fn old_2(i: u32) -> f32 { return slot_2[i]; }
fn keep_2(i: u32, value: f32) { slot_2[i] = value; }
