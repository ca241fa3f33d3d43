// h' = (1 - z) n + z h, with r and z through the logistic function and n = tanh(x_n + r r_n).
const BLOCKS: u32 = 3u;
const KEPT: u32 = 4u;  // r z n r_n

fn cell(x: array<f32, 4>, r: array<f32, 4>, h: f32, c: Others) -> Step {
    var s: Step;
    let reset = logistic(x[0] + r[0]);
    let z = logistic(x[1] + r[1]);
    let n = hyperbolic_tangent(x[2] + reset * r[2]);
    s.h = (1.0 - z) * n + z * h;
    s.kept = Kept(reset, z, n, r[2], 0.0, 0.0, 0.0, 0.0);
    return s;
}

fn cell_back(g: f32, arrived: Others, y: f32, kept: Kept, h: f32, c: Others) -> Back {
    var s: Back;
    let g_n = g * (1.0 - kept[1]) * (1.0 - kept[2] * kept[2]);
    let g_z = g * (h - kept[2]) * kept[1] * (1.0 - kept[1]);
    let g_r = g_n * kept[3] * kept[0] * (1.0 - kept[0]);
    s.x = array<f32, 4>(g_r, g_z, g_n, 0.0);
    s.r = array<f32, 4>(g_r, g_z, g_n * kept[0], 0.0);
    s.h = g * kept[1];
    return s;
}
