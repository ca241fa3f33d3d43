// Bias and penalties: the scores of a row that change before its draw, each operation rounded to float32 as on the host.
@group(0) @binding(0) var<storage, read_write> x: array<u32>;              // (rows, STRIDE): bits of f32
@group(0) @binding(1) var<storage, read> plans: array<vec4<u32>>;          // see weights.wgsl
// Index, with RECENT if the repetition penalty sees it; bits of what is added, and of what is taken off; the score before.
@group(0) @binding(2) var<storage, read_write> changes: array<vec4<u32>>;

fn unknown_zero() -> u32 { return arrayLength(&changes) >> 31u; }
fn finite(bits: u32) -> bool { return magnitude(bits) < 0x7f800000u; }

fn changed(before: u32, change: vec4<u32>, repetition: u32) -> u32 {
    var score = before;
    if (finite(score) && change.y != 0u) { score = single_difference(score, change.y ^ SIGN); }
    if (finite(score) && (change.x & RECENT) != 0u) {
        if (score != 0u && score < SIGN) {
            score = single_quotient(score, repetition);
        } else {
            score = single_product(score, repetition);
        }
    }
    if (finite(score) && change.z != 0u) { score = single_difference(score, change.z); }
    return score;
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let own = changes_of(group.y);
    //@rounds WIDTH / (GROUPS * WG) + 1
    for (var i = group.x * WG + lid; i < own.count; i += GROUPS * WG) {
        let change = changes[own.first + i];
        let at = group.y * STRIDE + (change.x & ~RECENT);
        changes[own.first + i].w = x[at];
        x[at] = changed(x[at], change, own.repetition);
    }
}
