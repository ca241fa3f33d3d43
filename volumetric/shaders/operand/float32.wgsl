// The staged vector of a matvec in float32. It lies in PLANES planes, one for each vec4 of a piece, so that neighbouring
// invocations, which hold neighbouring pieces, read neighbouring vectors whatever the weight format (no bank conflicts).
var<workgroup> xs: array<vec4<f32>, PLANES * PLANE>;

// Put 8 consecutive elements, number `i8` of the chunk, into their planes. All invocations call; those beyond do nothing.
fn stage8(i8: u32, a: vec4<f32>, b: vec4<f32>, inside: bool, lid: u32) {
    if (!inside) { return; }
    if (PLANES == 1u) {
        xs[2u * i8] = a;
        xs[2u * i8 + 1u] = b;
    } else {
        let at = 2u * (i8 % EIGHTHS) * PLANE + i8 / EIGHTHS;
        xs[at] = select(a, vec4<f32>(a.xz, b.xz), INTERLEAVED);
        xs[at + PLANE] = select(b, vec4<f32>(a.yw, b.yw), INTERLEAVED);
    }
}

// Unscaled products of staged piece `p` with a piece of each row, and the sum of the piece for affine formats.
fn dot_piece(w: Pieces, p: u32) -> Dots {
    var r: Dots;
    //@unroll
    for (var j = 0u; j < PIECE / 4u; j++) {
        let v = xs[j * PLANE + p];
        if (HAS_OFFSET) { r.total += dot(v, vec4<f32>(1.0)); }
        //@unroll
        for (var i = 0u; i < VALUES; i++) { r.row[i] += dot(piece_part(w[i], j), v); }
    }
    return r;
}
