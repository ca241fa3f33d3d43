// Measures the subgroup size, and whether lanes are neighbouring invocations as the reduce prelude assumes.
@group(0) @binding(0) var<storage, read_write> found: array<vec2<u32>>;  // (WG)

@compute @workgroup_size(WG)
fn main(
    @builtin(local_invocation_index) lid: u32,
    @builtin(subgroup_size) size: u32,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    found[lid] = vec2<u32>(size, lane);
}
