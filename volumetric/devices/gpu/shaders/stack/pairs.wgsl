// Each row times the matrices of the experts that it has chosen: row m of the result is of the pair of a row of x and a
// slot, in the order of both. A pair of weight 0 gives zeros.
@group(0) @binding(5) var<storage, read> chosen: array<vec2<u32>>;  // (rows, SLOTS): an expert, and the bits of its weight

fn share_of(group: vec3<u32>, count: vec3<u32>, lid: u32) -> Share {
    return Share(group.x, group.y, group.y + 1u, chosen[group.y].x);
}

fn x_row(m: u32) -> u32 { return m / SLOTS; }

fn factor_of(m: u32) -> f32 { return bitcast<f32>(chosen[m].y); }

fn placed(row: u32, p: u32) -> vec2<u32> { return vec2<u32>(row, p); }

fn bias_at(m: u32, at: u32) -> f32 { return bias[at]; }

fn residual_at(at: u32) -> vec4<f32> { return vec4<f32>(0.0); }
