// The staged vector of a matvec as int8 in blocks of 32 with a scale each, as llama.cpp does: weights in integer formats
// then meet it in 4-way integer dot products. Planes as in operand/float32, with 4 bytes in the place of a vec4.
// A block with a number that is not finite has a scale of NaN.
var<workgroup> xq: array<u32, PLANES * PLANE>;
var<workgroup> block: array<vec2<f32>, PLANES * PLANE / 8u + 1u>;  // scale and sum of each 32 elements

const INFINITE: u32 = 0x7f800000u;

// Four neighbouring invocations hold a block: all must call.
fn stage8(i8: u32, a: vec4<f32>, b: vec4<f32>, inside: bool, lid: u32) {
    // Magnitudes as integers, which have the same order; maxima of floats would lose NaN.
    let sizes = max(bitcast<vec4<u32>>(a) & vec4<u32>(0x7fffffffu), bitcast<vec4<u32>>(b) & vec4<u32>(0x7fffffffu));
    let size = min(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)), INFINITE);
    let top = team_max(bitcast<f32>(size), lid, 4u);
    var quiet = 0x7fc00000u;  // a variable, because no constant may be NaN
    let scale = select(top / 127.0, bitcast<f32>(quiet), bitcast<u32>(top) == INFINITE);
    var sum = 0.0;
    if (HAS_OFFSET) { sum = team_sum(dot(a + b, vec4<f32>(1.0)), lid, 4u); }
    if (!inside) { return; }
    if (i8 % 4u == 0u) { block[i8 / 4u] = vec2<f32>(scale, sum); }
    let inverse = select(0.0, 1.0 / scale, scale > 0.0);
    let qa = vec4<i32>(round(a * inverse));
    let qb = vec4<i32>(round(b * inverse));
    let at = 2u * (i8 % EIGHTHS) * PLANE + i8 / EIGHTHS;
    xq[at] = pack4xI8(select(qa, vec4<i32>(qa.xz, qb.xz), INTERLEAVED));
    xq[at + PLANE] = pack4xI8(select(qb, vec4<i32>(qa.yw, qb.yw), INTERLEAVED));
}

fn dot_piece(w: Pieces, p: u32) -> Dots {
    var sums: array<i32, VALUES>;
    //@unroll
    for (var j = 0u; j < PIECE / 4u; j++) {
        let v = xq[j * PLANE + p];
        //@unroll
        for (var i = 0u; i < VALUES; i++) { sums[i] += dot4I8Packed(piece_bytes(w[i], j), v); }
    }
    let b = block[p * PIECE / 32u];
    var r: Dots;
    r.total = b.y;
    //@unroll
    for (var i = 0u; i < VALUES; i++) { r.row[i] = b.x * f32(sums[i]); }
    return r;
}
