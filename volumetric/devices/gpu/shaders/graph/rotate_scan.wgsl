// s = keep · R s before + u for pairs, step by step; an invocation a pair of a sequence. REVERSE: from the last step on, turned
// back. A launch runs the steps `first` … `end` in the order of the scan, continuing from the present contents.
struct Dims { pairs: u32, length: u32, width: u32, first: u32, end: u32 }

@group(0) @binding(0) var<storage, read> u: array<f32>;      // (batch, length, 2 width)
@group(0) @binding(1) var<storage, read> g: array<f32>;      // (width)
@group(0) @binding(2) var<storage, read> phi: array<f32>;
@group(0) @binding(3) var<storage, read> before: array<f32>; // (batch, 2 width)
@group(0) @binding(4) var<storage, read> keep: array<f32>;   // (batch, length)
@group(0) @binding(5) var<storage, read_write> s: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let pair = flat_group(group, groups) * WG + lid;
    if (pair >= dims.pairs) { return; }
    let row = pair / dims.width;
    let at = pair % dims.width;
    var turn = vec2<f32>(g[at], phi[at]);
    if (REVERSE) { turn.y = -turn.y; }
    var a = 0.0;
    var b = 0.0;
    if (dims.first > 0u) {
        let last = 2u * place(row, dims.first - 1u) * dims.width + at;
        a = s[last];
        b = s[last + dims.width];
    } else if (!REVERSE) {
        a = before[2u * row * dims.width + at];
        b = before[(2u * row + 1u) * dims.width + at];
    }
    //@rounds dims.end - dims.first
    for (var i = dims.first; i < dims.end; i++) {
        let t = place(row, i);
        var turned = vec2<f32>(turn.x * a - turn.y * b, turn.y * a + turn.x * b);
        if (KEEP && (!REVERSE || i > 0u)) {
            let kept = keep[t + select(0u, 1u, REVERSE)];
            turned = select(turned * kept, vec2<f32>(0.0, 0.0), kept == 0.0);
        }
        let here = 2u * t * dims.width + at;
        a = turned.x + u[here];
        b = turned.y + u[here + dims.width];
        s[here] = a;
        s[here + dims.width] = b;
    }
}

fn place(row: u32, i: u32) -> u32 {
    if (REVERSE) { return row * dims.length + dims.length - 1u - i; }
    return row * dims.length + i;
}
