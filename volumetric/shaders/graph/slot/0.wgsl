@group(0) @binding(2) var<storage, read_write> slot_0: array<f32>;
fn old_0(i: u32) -> f32 { return slot_0[i]; }
fn keep_0(i: u32, value: f32) { slot_0[i] = value; }
