// The concatenated results of a row's experts times the matrices of these experts side by side: the sum of their
// products. x already contains the weights; a slot of weight 0 holds zeros and names the expert of another slot. A row
// without experts has none in its first slot, and is 0, whatever the named matrix holds.
@group(0) @binding(5) var<storage, read> residual: array<vec4<f32>>;  // (rows, N4)
@group(0) @binding(7) var<storage, read> chosen: array<vec2<u32>>;    // (rows, SLOTS): an expert, and the bits of its weight

var<workgroup> slot_row: array<u32, SLOTS>;  // where the matrix of each slot begins

fn share_of(group: vec3<u32>, count: vec3<u32>, lid: u32) -> Share {
    for (var s = lid; s < SLOTS; s += WG) { slot_row[s] = chosen[group.y * SLOTS + s].x * UNITS; }
    workgroupBarrier();
    return Share(group.x, group.y, group.y + 1u, 0u);
}

fn x_row(m: u32) -> u32 { return m; }

fn factor_of(m: u32) -> f32 { return select(1.0, 0.0, (chosen[m * SLOTS].y & 0x7fffffffu) == 0u); }

fn placed(row: u32, p: u32) -> vec2<u32> { return vec2<u32>(slot_row[p / PIECES] + row, p % PIECES); }

fn bias_at(m: u32, at: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s < SLOTS; s++) {
        let slot = chosen[m * SLOTS + s];
        if ((slot.y & 0x7fffffffu) != 0u) { sum += bitcast<f32>(slot.y) * bias[slot.x * STRIDE + at]; }
    }
    return sum;
}

fn residual_at(at: u32) -> vec4<f32> { return residual[at]; }
