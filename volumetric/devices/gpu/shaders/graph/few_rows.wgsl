// c[g] = apply(a[g] op(b[g mod Gb]) + bias): products of groups of few rows each, whose time is that of reading b.
//
// A workgroup makes all rows of 4 * LANES or, where b is (n, k), of 4 * SLICES columns of a group. An invocation has vectors of
// b that neighbours continue: of LANES * 4 columns in every SLICES-th row of b; or, with TRANS_B, parts of 4 rows, which are
// columns of c. What invocations summed apart is joined in workgroup memory, in one order. a lies in up to three tensors, in
// parts of whole groups one behind the other.
struct Dims {
    n: u32, k: u32,
    a_groups: u32, b_groups: u32,
    across: u32,  // workgroups of a group
    total: u32,   // workgroups
    per_bias: u32,  // 0 where all groups share a bias, else its elements
    unused: u32,
    parts: array<vec4<u32>, 8>,  // first group, tensor, first element
}

@group(0) @binding(0) var<storage, read> a_0: array<f32>;
@group(0) @binding(1) var<storage, read> a_1: array<f32>;
@group(0) @binding(2) var<storage, read> a_2: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> c: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

const SLICES: u32 = WG / LANES;

var<workgroup> sums: array<vec4<f32>, WG>;

fn left(tensor: u32, at: u32) -> f32 {
    switch (tensor) {
        case 0u: { return a_0[at]; }
        case 1u: { return a_1[at]; }
        default: { return a_2[at]; }
    }
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    if (id >= dims.total) { return; }
    let g = id / dims.across;
    let block = id % dims.across;
    if (is_idle(g * ROWS * dims.n, (g + 1u) * ROWS * dims.n)) { return; }
    let lane = lid % LANES;
    let slice = lid / LANES;
    let from_group = g % dims.a_groups;
    var part = dims.parts[0];
    //@unroll
    for (var i = 1u; i < 8u; i++) {
        if (dims.parts[i].x <= from_group) { part = dims.parts[i]; }
    }
    let x = part.z + (from_group - part.x) * (ROWS * dims.k);
    let w = g % dims.b_groups * (dims.k * dims.n / 4u);
    var acc: array<vec4<f32>, ROWS>;
    //@unroll
    for (var r = 0u; r < ROWS; r++) { acc[r] = vec4<f32>(0.0); }
    if (TRANS_B) {
        let wide = dims.k / 4u;
        let n0 = block * (4u * SLICES) + slice;
        //@rounds dims.k / 4 / LANES + 1
        for (var k = lane; k < wide; k += LANES) {
            var row: array<vec4<f32>, 4>;
            //@unroll
            for (var j = 0u; j < 4u; j++) { row[j] = b[w + min(n0 + j * SLICES, dims.n - 1u) * wide + k]; }
            //@unroll
            for (var r = 0u; r < ROWS; r++) {
                let at = x + r * dims.k + 4u * k;
                let one = vec4<f32>(left(part.y, at), left(part.y, at + 1u), left(part.y, at + 2u), left(part.y, at + 3u));
                acc[r] += vec4<f32>(dot(one, row[0]), dot(one, row[1]), dot(one, row[2]), dot(one, row[3]));
            }
        }
    } else {
        let wide = dims.n / 4u;
        let n4 = min(block * LANES + lane, wide - 1u);
        //@rounds dims.k / SLICES + 1
        for (var k = slice; k < dims.k; k += SLICES) {
            let row = b[w + k * wide + n4];
            //@unroll
            for (var r = 0u; r < ROWS; r++) { acc[r] = fma(vec4<f32>(left(part.y, x + r * dims.k + k)), row, acc[r]); }
        }
    }
    //@unroll
    for (var r = 0u; r < ROWS; r++) {
        sums[lid] = acc[r];
        workgroupBarrier();
        // An invocation joins and writes one element: of vector lid / 4, its component lid % 4.
        let vector = lid / 4u;
        if (vector < select(LANES, SLICES, TRANS_B)) {
            var v = 0.0;
            var n = 4u * (block * LANES) + lid;
            if (TRANS_B) {
                for (var i = 0u; i < LANES; i++) { v += sums[vector * LANES + i][lid % 4u]; }
                n = block * (4u * SLICES) + lid % 4u * SLICES + vector;
            } else {
                for (var i = 0u; i < SLICES; i++) { v += sums[i * LANES + vector][lid % 4u]; }
            }
            if (n < dims.n) {
                if (BIAS) { v += bias[g * dims.per_bias + n]; }
                c[(g * ROWS + r) * dims.n + n] = apply(v);
            }
        }
        workgroupBarrier();
    }
}
