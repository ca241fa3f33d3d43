// c' = f c + i g, h' = o tanh(c'), with i, f, o through the logistic function and g through tanh.
const BLOCKS: u32 = 4u;
const KEPT: u32 = 5u;  // i f g o c'

fn cell(x: array<f32, 4>, r: array<f32, 4>, h: f32, c: Others) -> Step {
    var s: Step;
    let i = logistic(x[0] + r[0]);
    let f = logistic(x[1] + r[1]);
    let g = hyperbolic_tangent(x[2] + r[2]);
    let o = logistic(x[3] + r[3]);
    let after = f * c[0] + i * g;
    s.h = o * hyperbolic_tangent(after);
    s.kept = Kept(i, f, g, o, after, 0.0, 0.0, 0.0);
    return s;
}

fn cell_back(g: f32, arrived: Others, y: f32, kept: Kept, h: f32, c: Others) -> Back {
    var s: Back;
    let bounded = hyperbolic_tangent(kept[4]);
    let along = arrived[0] + g * kept[3] * (1.0 - bounded * bounded);
    s.x[0] = along * kept[2] * kept[0] * (1.0 - kept[0]);
    s.x[1] = along * c[0] * kept[1] * (1.0 - kept[1]);
    s.x[2] = along * kept[0] * (1.0 - kept[2] * kept[2]);
    s.x[3] = g * bounded * kept[3] * (1.0 - kept[3]);
    s.r = s.x;
    s.c[0] = along * kept[1];
    return s;
}
