// The staged vectors of a matvec as int8 in blocks of 32 with a scale each, as llama.cpp does: weights in integer
// formats are then multiplied in 4-way integer dot products. Planes as in operand/float32, with 4 bytes instead of a
// vec4.
// A block with a number that is not finite has a scale of NaN.
const GRAIN: u32 = min(PIECE, 32u);  // elements whose sum a piece may ask for
const GRAINS: u32 = PLANES * PLANE * 4u / GRAIN + 1u;

var<workgroup> xq: array<u32, BATCH * PLANES * PLANE>;
var<workgroup> block: array<vec2<f32>, BATCH * (PLANES * PLANE * 4u / GRAIN + 1u)>;  // of each grain: scale of its 32, and sum

// Four neighbouring invocations hold a block: all must call.
fn stage8(b: u32, i8: u32, a: vec4<f32>, c: vec4<f32>, inside: bool, lid: u32) {
    // Magnitudes as integers, which have the same order; maxima of floats would lose NaN.
    let sizes = max(bitcast<vec4<u32>>(a) & vec4<u32>(0x7fffffffu), bitcast<vec4<u32>>(c) & vec4<u32>(0x7fffffffu));
    let size = min(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)), INFINITY);
    let top = team_max(bitcast<f32>(size), lid, 4u);
    let scale = select(top / 127.0, nan(), bitcast<u32>(top) == INFINITY);
    var sum = 0.0;
    if (HAS_OFFSET) { sum = team_sum(dot(a + c, vec4<f32>(1.0)), lid, GRAIN / 8u); }
    if (!inside) { return; }
    if (i8 % (GRAIN / 8u) == 0u) { block[b * GRAINS + i8 / (GRAIN / 8u)] = vec2<f32>(scale, sum); }
    let inverse = select(0.0, 1.0 / scale, scale > 0.0);
    let qa = vec4<i32>(round(a * inverse));
    let qc = vec4<i32>(round(c * inverse));
    let at = (b * PLANES + 2u * (i8 % EIGHTHS)) * PLANE + i8 / EIGHTHS;
    xq[at] = pack4xI8(select(qa, vec4<i32>(qa.xz, qc.xz), INTERLEAVED));
    xq[at + PLANE] = pack4xI8(select(qc, vec4<i32>(qa.yw, qc.yw), INTERLEAVED));
}

fn dot_piece(w: Pieces, p: u32, start: Sums) -> Dots {
    var sums: array<i32, VALUES * BATCH>;
    var first: array<i32, VALUES * BATCH>;  // of the first half, where halves of a piece have weights of their own
    //@unroll
    for (var j = 0u; j < PIECE / 4u; j++) {
        if (HALVES && j == PIECE / 8u) {
            //@unroll
            for (var i = 0u; i < VALUES * BATCH; i++) {
                first[i] = sums[i] * half_weight(w[i % VALUES], 0u);
                sums[i] = 0;
            }
        }
        //@unroll
        for (var b = 0u; b < BATCH; b++) {
            let v = xq[(b * PLANES + j) * PLANE + p];
            //@unroll
            for (var i = 0u; i < VALUES; i++) { sums[b * VALUES + i] += dot4I8Packed(piece_bytes(w[i], j), v); }
        }
    }
    if (HALVES) {
        //@unroll
        for (var i = 0u; i < VALUES * BATCH; i++) { sums[i] = first[i] + sums[i] * half_weight(w[i % VALUES], 1u); }
    }
    var r: Dots;
    //@unroll
    for (var b = 0u; b < BATCH; b++) {
        let about = block[b * GRAINS + p * PIECE / GRAIN];
        r.total[b] = about.y;
        //@unroll
        for (var i = 0u; i < VALUES; i++) { r.row[b * VALUES + i] = start[b * VALUES + i] + about.x * f32(sums[b * VALUES + i]); }
    }
    return r;
}
