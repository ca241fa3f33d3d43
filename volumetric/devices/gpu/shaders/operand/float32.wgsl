// The staged vectors of a matvec in float32. Each lies in PLANES planes, one for each vec4 of a piece, so that neighbouring
// invocations, which hold neighbouring pieces, read neighbouring vectors whatever the weight format (no bank conflicts).
var<workgroup> xs: array<vec4<f32>, BATCH * PLANES * PLANE>;

// Put 8 consecutive elements, number `i8` of the chunk of row b, into their planes. All invocations call; those beyond do nothing.
fn stage8(b: u32, i8: u32, a: vec4<f32>, c: vec4<f32>, inside: bool, lid: u32) {
    if (!inside) { return; }
    if (PLANES == 1u) {
        xs[b * PLANE + 2u * i8] = a;
        xs[b * PLANE + 2u * i8 + 1u] = c;
    } else {
        let at = (b * PLANES + 2u * (i8 % EIGHTHS)) * PLANE + i8 / EIGHTHS;
        xs[at] = select(a, vec4<f32>(a.xz, c.xz), INTERLEAVED);
        xs[at + PLANE] = select(c, vec4<f32>(a.yw, c.yw), INTERLEAVED);
    }
}

fn add_dot(sum: f32, w: vec4<f32>, v: vec4<f32>) -> f32 {
    if (BATCH == 1u) { return sum + dot(w, v); }
    return fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sum))));
}

// Unscaled products of staged piece `p` of each row with a piece of each weight row, added to `start`, and the sum of the
// piece for affine formats.
fn dot_piece(w: Pieces, p: u32, start: Sums) -> Dots {
    var r: Dots;
    r.row = start;
    //@unroll
    for (var j = 0u; j < PIECE / 4u; j++) {
        var part: array<vec4<f32>, VALUES>;
        //@unroll
        for (var i = 0u; i < VALUES; i++) { part[i] = piece_part(w[i], j); }
        //@unroll
        for (var b = 0u; b < BATCH; b++) {
            let v = xs[(b * PLANES + j) * PLANE + p];
            if (HAS_OFFSET) { r.total[b] += dot(v, vec4<f32>(1.0)); }
            //@unroll
            for (var i = 0u; i < VALUES; i++) { r.row[b * VALUES + i] = add_dot(r.row[b * VALUES + i], part[i], v); }
        }
    }
    return r;
}
