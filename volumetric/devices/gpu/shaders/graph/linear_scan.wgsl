// s = keep · a · s before + u, step by step; an invocation a lane of a sequence. REVERSE: from the last step on, and the factor
// is that of the step before. A launch runs the steps `first` … `end` in the order of the scan, from the present
// contents.
struct Dims { lanes: u32, length: u32, width: u32, first: u32, end: u32 }

@group(0) @binding(0) var<storage, read> u: array<f32>;      // (batch, length, width)
@group(0) @binding(1) var<storage, read> a: array<f32>;      // the same, or (width)
@group(0) @binding(2) var<storage, read> before: array<f32>; // (batch, width)
@group(0) @binding(3) var<storage, read> keep: array<f32>;   // (batch, length)
@group(0) @binding(4) var<storage, read_write> s: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = flat_group(group, groups) * WG + lid;
    if (lane >= dims.lanes) { return; }
    let row = lane / dims.width;
    let at = lane % dims.width;
    var held = 0.0;
    if (dims.first > 0u) { held = s[place(row, dims.first - 1u) * dims.width + at]; }
    else if (!REVERSE) { held = before[lane]; }
    //@rounds dims.end - dims.first
    for (var i = dims.first; i < dims.end; i++) {
        let t = place(row, i);
        var passed = 0.0;
        if (!REVERSE || i > 0u) {
            var read = t;  // the step whose factor meets what came before
            if (REVERSE) { read = t + 1u; }
            if (OF_STEP) { passed = a[read * dims.width + at] * held; } else { passed = a[at] * held; }
            if (KEEP) {
                let kept = keep[read];
                passed = select(passed * kept, 0.0, kept == 0.0);
            }
        }
        held = passed + u[t * dims.width + at];
        s[t * dims.width + at] = held;
    }
}

fn place(row: u32, i: u32) -> u32 {
    if (REVERSE) { return row * dims.length + dims.length - 1u - i; }
    return row * dims.length + i;
}
