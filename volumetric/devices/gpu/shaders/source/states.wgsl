// The vectors that a matvec multiplies: the value of a fixed state of each sequence before its row args.step.
struct Args { step: u32 }
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;  // (lines, RING, K4)

fn x_load4(row: u32, v: u32) -> vec4<f32> {
    let place = ctl.places[row];
    let position = place.x + args.step;
    let value = mask4(x[(place.y * RING + position % RING) * K4 + min(v, K4 - 1u)], v, K);
    return select(value, vec4<f32>(0.0), position == 0u);
}
