// Rows of y are rows of up to 6 tensors side by side, from column `start` on. A tensor is read from one of its elements
// on. Elements are moved as bits.
struct Dims {
    count: u32, columns: u32, width: u32, start: u32,  // elements and columns of these tensors; columns of y, their first
    edges: array<vec4<u32>, 2>,  // first column of each tensor among theirs, then the end
    starts: array<vec4<u32>, 2>,  // first element of each tensor
}

@group(0) @binding(0) var<storage, read> x_0: array<u32>;
@group(0) @binding(1) var<storage, read> x_1: array<u32>;
@group(0) @binding(2) var<storage, read> x_2: array<u32>;
@group(0) @binding(3) var<storage, read> x_3: array<u32>;
@group(0) @binding(4) var<storage, read> x_4: array<u32>;
@group(0) @binding(5) var<storage, read> x_5: array<u32>;
@group(0) @binding(6) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

fn edge(i: u32) -> u32 { return dims.edges[i / 4u][i % 4u]; }

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let begin = flat_group(group, groups) * WG;
    let at = begin + lid;
    let end = min(begin + WG, dims.count);
    if (at >= dims.count || is_idle(begin / dims.columns * dims.width, ((end - 1u) / dims.columns + 1u) * dims.width)) {
        return;
    }
    let row = at / dims.columns;
    let column = at % dims.columns;
    var which = 0u;
    //@unroll
    for (var i = 1u; i < 6u; i++) {
        if (column >= edge(i)) { which = i; }
    }
    let from_at = dims.starts[which / 4u][which % 4u] + row * (edge(which + 1u) - edge(which)) + column - edge(which);
    var moved = 0u;
    switch (which) {
        case 0u: { moved = x_0[from_at]; }
        case 1u: { moved = x_1[from_at]; }
        case 2u: { moved = x_2[from_at]; }
        case 3u: { moved = x_3[from_at]; }
        case 4u: { moved = x_4[from_at]; }
        default: { moved = x_5[from_at]; }
    }
    y[row * dims.width + dims.start + column] = moved;
}
