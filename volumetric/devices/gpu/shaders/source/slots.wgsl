// The vectors that a matvec multiplies: for each row the results of SLOTS experts, each padded to whole pieces.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;  // (rows, SLOTS, SLOT4)

const SLOT4: u32 = (SLOT_WIDTH + 3u) / 4u;
const ROOM4: u32 = PIECES * PIECE / 4u;

fn x_load4(row: u32, v: u32) -> vec4<f32> {
    let slot = min(v / ROOM4, SLOTS - 1u);
    let at = v % ROOM4;
    return mask4(x[(row * SLOTS + slot) * SLOT4 + min(at, SLOT4 - 1u)], at, SLOT_WIDTH);
}
