// The row of a call that decodes one sequence.
fn share_of(group: vec3<u32>, count: vec3<u32>, lid: u32) -> Share { return Share(flat_group(group, count), 0u, 1u, 0u); }
