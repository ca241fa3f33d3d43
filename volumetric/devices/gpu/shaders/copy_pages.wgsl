// Copy pages over others of the same buffer.
@group(0) @binding(0) var<storage, read_write> pages: array<vec4<u32>>;  // (pages, VECTORS)
@group(0) @binding(1) var<storage, read> moves: array<vec2<u32>>;        // from, to

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let v = group.x * WG + lid;
    if (v >= VECTORS) { return; }
    let one = moves[group.y];
    pages[one.y * VECTORS + v] = pages[one.x * VECTORS + v];
}
