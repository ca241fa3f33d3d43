// Exponential gates over a running maximum: c' = f c + i z, n' = f n + i, h' = o c' / n', with m' = max(i, m + log f).
const BLOCKS: u32 = 4u;
const KEPT: u32 = 8u;  // i f z o s c' n' m', where s is the logistic function of the pre-activation of f
const EPS: f32 = 1e-6;

fn cell(x: array<f32, 4>, r: array<f32, 4>, h: f32, c: Others) -> Step {
    var s: Step;
    let i = x[0] + r[0];
    let f = x[1] + r[1];
    let passed = c[2] - (positive(-f) + log_of_one_plus(exponential(-abs(f))));
    let most = select(max(i, passed), i, c[1] == 0.0);
    let behind = passed - most;
    let open_i = exponential(i - most);
    let open_f = exponential(select(min(behind, 0.0), behind, is_nan(behind)));
    let z = hyperbolic_tangent(x[2] + r[2]);
    let o = logistic(x[3] + r[3]);
    let after = open_f * c[0] + open_i * z;
    let whole = open_f * c[1] + open_i;
    s.h = o * after / (whole + EPS);
    s.kept = Kept(open_i, open_f, z, o, logistic(f), after, whole, most);
    return s;
}

fn cell_back(g: f32, arrived: Others, y: f32, kept: Kept, h: f32, c: Others) -> Back {
    var s: Back;
    let i = kept[0];
    let f = kept[1];
    let along = g / (kept[6] + EPS);
    let gc = arrived[0] + along * kept[3];
    let gn = arrived[1] - along * kept[3] * kept[5] / (kept[6] + EPS);
    let by_i = (gc * kept[2] + gn) * i;
    let fresh = c[1] == 0.0;
    let by_f = select((gc * c[0] + gn * c[1]) * f, 0.0, fresh && f == 1.0);
    let rest = arrived[2] - by_i - by_f;
    let to_i = fresh || i == 1.0;
    let to_f = by_f + select(rest, 0.0, to_i);
    s.x = array<f32, 4>(
        by_i + select(0.0, rest, to_i),
        to_f * (1.0 - kept[4]),
        gc * i * (1.0 - kept[2] * kept[2]),
        along * kept[5] * kept[3] * (1.0 - kept[3]),
    );
    s.r = s.x;
    s.c = Others(gc * f, gn * f, to_f);
    return s;
}
