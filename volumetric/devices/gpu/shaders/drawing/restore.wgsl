// The scores that were changed, as they were: of a row that is left to the host, which changes them itself.
@group(0) @binding(0) var<storage, read> plans: array<vec4<u32>>;         // see weights.wgsl
@group(0) @binding(1) var<storage, read> changes: array<vec4<u32>>;       // see adjust.wgsl
@group(0) @binding(2) var<storage, read_write> doubtful: array<u32>;      // (rows, STRIDE)

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let own = changes_of(group.y);
    //@rounds WIDTH / (GROUPS * WG) + 1
    for (var i = group.x * WG + lid; i < own.count; i += GROUPS * WG) {
        let change = changes[own.first + i];
        doubtful[group.y * STRIDE + (change.x & ~RECENT)] = change.w;
    }
}
