// The vectors that a matvec multiplies: attention partials, combined while they are read. `x` holds SPLITS unnormalised
// outputs of K elements for each row, `maxima` their running maxima and sums, [rows, SPLITS, HEADS]. A split that saw nothing has weight 0.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> maxima: array<vec2<f32>>;

fn x_load4(row: u32, v: u32) -> vec4<f32> {
    if (v >= K4) { return vec4<f32>(0.0); }
    let head = v / (HEAD_DIM / 4u);
    var part: array<vec4<f32>, SPLITS>;
    var state: array<vec2<f32>, SPLITS>;
    var top = LOWEST;
    //@unroll
    for (var s = 0u; s < SPLITS; s++) {
        part[s] = x[(row * SPLITS + s) * K4 + v];
        state[s] = maxima[(row * SPLITS + s) * HEADS + head];
        top = max(top, state[s].x);
    }
    var total = 0.0;
    var value = vec4<f32>(0.0);
    //@unroll
    for (var s = 0u; s < SPLITS; s++) {
        let weight = select(decay(state[s].x - top), 0.0, state[s].y == 0.0);
        total += weight * state[s].y;
        value += weight * part[s];
    }
    return value / max(total, SMALLEST_NORMAL);
}
