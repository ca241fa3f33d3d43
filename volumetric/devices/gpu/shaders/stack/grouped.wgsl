// Rows in the order of the experts that they have chosen, in blocks of up to BATCH of one expert each, as `group_rows` has
// laid them out: row m of the result is of pair number m in that order. A pair of weight 0 has no place.
@group(0) @binding(5) var<storage, read> routes: array<u32>;

fn share_of(group: vec3<u32>, count: vec3<u32>, lid: u32) -> Share {
    let at = BLOCKS_AT + 4u * group.y;
    return Share(group.x, routes[at], routes[at + 1u], routes[at + 2u]);
}

fn x_row(m: u32) -> u32 {
    if (!GATHERED) { return m; }
    return routes[m];
}

fn factor_of(m: u32) -> f32 { return bitcast<f32>(routes[PAIRS + m]); }

fn placed(row: u32, p: u32) -> vec2<u32> { return vec2<u32>(row, p); }

fn bias_at(m: u32, at: u32) -> f32 { return bias[at]; }

fn residual_at(at: u32) -> vec4<f32> { return vec4<f32>(0.0); }
