// y[m, n] = cap(residual[m, n] + apply(W[n, :] . norm(x[m, :]) + bias[n])), or apply(gate) * up with two weight rows for each
// output; for one row, or for BATCH rows at a time.
//
// A team of TEAM invocations owns ROWS outputs and splits K; teams share x, which is staged CHUNK pieces at a time in
// workgroup memory, in the form that an operand prelude gives it. RMS norm costs no pass: sum x^2 accumulates while x is
// staged and scales the dot products at the end. Outputs FIRST … FIRST + UNITS are those of this shard.
// Several rows are multiplied by each piece of a weight in registers, so that weights are read once for all of them;
// the next pieces are loaded meanwhile, because that arithmetic takes about as long as memory.

@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;   // (matrices, PARTS * UNITS, PIECES)
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;            // (matrices, PARTS, STRIDE)
@group(0) @binding(4) var<storage, read> norm_params: array<vec4<f32>>;  // gain (K4), then bias (K4)
@group(0) @binding(6) var<storage, read_write> y: array<f32>;         // (rows, STRIDE)

const K4: u32 = (K + 3u) / 4u;
const STRIDE: u32 = (N + 3u) / 4u * 4u;
const ALL_PIECES: u32 = (K + PIECE - 1u) / PIECE;  // of a row of x, which may meet rows of several matrices
const PLANES: u32 = PIECE / 4u;
const EIGHTHS: u32 = max(PIECE / 8u, 1u);
const VALUES: u32 = ROWS * PARTS;
const SHARE: u32 = WG / BATCH;           // invocations that stage a row of x
const EIGHTS: u32 = CHUNK * PIECE / 8u;  // eights of elements in a chunk of a row
const OUTPUTS: u32 = ROWS * BATCH;
const COUNT: u32 = VALUES * BATCH;       // sums of an invocation

alias Pieces = array<Piece, VALUES>;  // a piece of each weight row of an invocation

alias Sums = array<f32, COUNT>;

struct Dots {
    row: Sums,
    total: array<f32, BATCH>,
}

struct Round {
    w: array<Piece, UNROLL * VALUES>,
    s: array<vec2<f32>, UNROLL * VALUES>,
}

fn square(v: vec4<f32>) -> f32 { return dot(v, v); }

// Mean and reciprocal deviation of a row of x, and what rounding took from the mean, for layer norm alone.
fn moments(row: u32, lid: u32) -> vec3<f32> {
    if (NORM != 2u) { return vec3<f32>(0.0, 1.0, 0.0); }
    var sum = 0.0;
    for (var v = lid % SHARE; v < K4; v += SHARE) { sum += dot(x_load4(row, v), vec4<f32>(1.0)); }
    let mean = team_sum(sum, lid, SHARE) / f32(K);
    var rest = 0.0;
    var squares = 0.0;
    for (var v = lid % SHARE; v < K4; v += SHARE) {
        let d = mask4(x_load4(row, v) - mean, v, K);
        rest += dot(d, vec4<f32>(1.0));
        squares += square(d);
    }
    let shift = team_sum(rest, lid, SHARE) / f32(K);
    let variance = variance_about(team_sum(squares, lid, SHARE) / f32(K), shift);
    return vec3<f32>(mean, inverseSqrt(variance + EPS), shift);
}

fn normed(v: u32, value: vec4<f32>, m: vec3<f32>) -> vec4<f32> {
    var r = value;
    if (NORM == 2u) { r = mask4(((r - m.x) - m.z) * m.y, v, K); }
    if (HAS_NORM_WEIGHT && NORM != 0u) { r *= norm_params[min(v, K4 - 1u)] + NORM_UNIT; }
    if (HAS_NORM_BIAS && NORM != 0u) { r += norm_params[K4 + min(v, K4 - 1u)]; }
    return select(r, vec4<f32>(0.0), v >= K4);
}

// Stage one chunk of norm(x); returns this invocation's share of sum x^2 of its row.
fn stage(chunk: u32, row: u32, lid: u32, m: vec3<f32>) -> f32 {
    var squares = 0.0;
    for (var base = 0u; base < EIGHTS; base += SHARE) {
        let i8 = base + lid % SHARE;
        let inside = i8 < EIGHTS;
        let v = select(K4, 2u * (chunk * EIGHTS + i8), inside);
        let a = x_load4(row, v);
        let b = x_load4(row, v + 1u);
        squares += square(a) + square(b);
        stage8(lid / SHARE, i8, normed(v, a, m), normed(v + 1u, b, m), inside, lid);
    }
    return squares;
}

// The pieces from `at` on of the weight rows of an invocation; those beyond the end repeat the last.
fn load_round(row: array<u32, VALUES>, at: u32) -> Round {
    var found: Round;
    //@unroll
    for (var u = 0u; u < UNROLL; u++) {
        let p = min(at + u * TEAM, ALL_PIECES - 1u);
        //@unroll
        for (var r = 0u; r < VALUES; r++) {
            let place = placed(row[r], p);
            found.w[u * VALUES + r] = load_piece(place.x, place.y);
            found.s[u * VALUES + r] = piece_scale(place.x, place.y);
        }
    }
    return found;
}

// What RMS norm makes of the sums of a row of the batch.
fn norm_scale(b: u32) -> f32 {
    if (NORM != 1u) { return 1.0; }
    return inverseSqrt(published_sum(b) / f32(K) + EPS);
}

// Write output n of row m of a matrix; `up` counts for gated products only.
fn finish(m: u32, n: u32, matrix: u32, gate: f32, up: f32) {
    var value = gate;
    let at = matrix * PARTS * STRIDE + n;
    if (HAS_BIAS) { value += bias_at(m, at); }
    if (PARTS == 2u) {
        var other = up;
        if (HAS_BIAS) { other += bias_at(m, at + STRIDE); }
        value = opened(value, other);
    } else {
        value = apply(value);
    }
    if (WEIGHTED) {
        let factor = factor_of(m);
        value = select(factor * value, 0.0, (bitcast<u32>(factor) & 0x7fffffffu) == 0u);
    }
    if (HAS_RESIDUAL) { value += residual_at(m * (STRIDE / 4u) + n / 4u)[n % 4u]; }
    if (SOFTCAP > 0.0) { value = soft_cap(value, SOFTCAP); }
    y[m * STRIDE + n] = value;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % TEAM;
    let share = share_of(group, count, lid);
    let m0 = share.first;
    if (m0 >= share.end || is_idle(m0, share.end)) { return; }
    let unit = (share.block * (WG / TEAM) + lid / TEAM) * ROWS;
    let staged = x_row(min(m0 + lid / SHARE, share.end - 1u));
    var row: array<u32, VALUES>;
    //@unroll
    for (var r = 0u; r < VALUES; r++) {
        row[r] = (share.matrix * PARTS + r % PARTS) * UNITS + min(unit + r / PARTS, UNITS - 1u);
    }
    var acc: Sums;
    //@unroll
    for (var i = 0u; i < COUNT; i++) { acc[i] = 0.0; }
    var next: Round;
    if (BATCH > 1u) { next = load_round(row, lane); }
    let m = moments(staged, lid);
    var squares = 0.0;
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
        if (chunk > 0u) { workgroupBarrier(); }
        squares += stage(chunk, staged, lid, m);
        if (NORM == 1u && chunk == CHUNKS - 1u) { publish(squares, lid); }
        workgroupBarrier();
        for (var i = lane; i < CHUNK; i += TEAM * UNROLL) {
            var now: Round;
            if (BATCH > 1u) {
                now = next;
                next = load_round(row, chunk * CHUNK + i + TEAM * UNROLL);
            } else {
                now = load_round(row, chunk * CHUNK + i);
            }
            //@unroll
            for (var u = 0u; u < UNROLL; u++) {
                var pieces: Pieces;
                //@unroll
                for (var r = 0u; r < VALUES; r++) { pieces[r] = now.w[u * VALUES + r]; }
                if (BATCH > 1u && !SCALED) {
                    acc = dot_piece(pieces, i + u * TEAM, acc).row;
                } else {
                    var none: Sums;
                    let dots = dot_piece(pieces, i + u * TEAM, none);
                    //@unroll
                    for (var b = 0u; b < BATCH; b++) {
                        //@unroll
                        for (var r = 0u; r < VALUES; r++) {
                            let s = now.s[u * VALUES + r];
                            acc[b * VALUES + r] += s.x * dots.row[b * VALUES + r] + s.y * dots.total[b];
                        }
                    }
                }
            }
        }
    }
    write_sums(acc, lid, unit, share);
}
