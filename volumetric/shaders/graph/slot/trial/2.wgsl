// A slot that is only looked at.
@group(0) @binding(4) var<storage, read> slot_2: array<f32>;
fn old_2(i: u32) -> f32 { return slot_2[i]; }
fn keep_2(i: u32, value: f32) { }
