// A row for each sequence of a call, BATCH at a time.
fn share_of(group: vec3<u32>, count: vec3<u32>, lid: u32) -> Share { return Share(group.x, group.y * BATCH, ctl.pieces, 0u); }
