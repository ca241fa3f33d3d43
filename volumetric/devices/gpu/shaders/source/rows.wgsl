// The vectors that a matvec multiplies: rows of a value.
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;

fn x_load4(row: u32, v: u32) -> vec4<f32> {
    let value = mask4(x[row * K4 + min(v, K4 - 1u)], v, K);
    return value;
}
