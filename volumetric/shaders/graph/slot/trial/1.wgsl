// A slot that is only looked at.
@group(0) @binding(3) var<storage, read> slot_1: array<f32>;
fn old_1(i: u32) -> f32 { return slot_1[i]; }
fn keep_1(i: u32, value: f32) { }
