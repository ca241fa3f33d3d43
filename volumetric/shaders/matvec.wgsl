// y[n] = cap(residual[n] + act(W[n, :] . norm(x) + bias[n])), or act(gate) * up with two weight rows for each output.
//
// A team of TEAM invocations owns ROWS outputs and splits K; teams share x, which is staged CHUNK pieces at a time in
// workgroup memory, in the form that an operand prelude gives it. RMS norm costs no pass: sum x^2 accumulates while x is
// staged and scales the dot products at the end. Outputs FIRST … FIRST + UNITS are those of this shard.

@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;   // (PARTS * UNITS, PIECES)
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;            // (PARTS, N padded to whole vectors)
@group(0) @binding(4) var<storage, read> norm_params: array<vec4<f32>>;  // gain (K4), then bias (K4)
@group(0) @binding(5) var<storage, read> residual: array<f32>;        // (N)
@group(0) @binding(6) var<storage, read_write> y: array<f32>;         // (N)

const K4: u32 = (K + 3u) / 4u;
const PLANES: u32 = PIECE / 4u;
const EIGHTHS: u32 = max(PIECE / 8u, 1u);
const VALUES: u32 = ROWS * PARTS;

alias Pieces = array<vec4<u32>, VALUES>;  // a piece of each weight row of an invocation

struct Dots {
    row: array<f32, VALUES>,
    total: f32,
}

fn square(v: vec4<f32>) -> f32 { return dot(v, v); }

// Mean and reciprocal deviation of x, and what rounding took from the mean, for layer norm alone.
fn moments(lid: u32) -> vec3<f32> {
    if (NORM != 2u) { return vec3<f32>(0.0, 1.0, 0.0); }
    var sum = 0.0;
    for (var v = lid; v < K4; v += WG) { sum += dot(x_load4(v), vec4<f32>(1.0)); }
    let mean = team_sum(sum, lid, WG) / f32(K);
    var rest = 0.0;
    var squares = 0.0;
    for (var v = lid; v < K4; v += WG) {
        let d = mask4(x_load4(v) - mean, v, K);
        rest += dot(d, vec4<f32>(1.0));
        squares += square(d);
    }
    let shift = team_sum(rest, lid, WG) / f32(K);
    let variance = variance_about(team_sum(squares, lid, WG) / f32(K), shift);
    return vec3<f32>(mean, inverseSqrt(variance + EPS), shift);
}

fn normed(v: u32, value: vec4<f32>, m: vec3<f32>) -> vec4<f32> {
    var r = value;
    if (NORM == 2u) { r = mask4(((r - m.x) - m.z) * m.y, v, K); }
    if (HAS_NORM_WEIGHT && NORM != 0u) { r *= norm_params[min(v, K4 - 1u)] + NORM_UNIT; }
    if (HAS_NORM_BIAS && NORM != 0u) { r += norm_params[K4 + min(v, K4 - 1u)]; }
    return select(r, vec4<f32>(0.0), v >= K4);
}

// Stage one chunk of norm(x); returns this invocation's share of sum x^2.
fn stage(chunk: u32, lid: u32, m: vec3<f32>) -> f32 {
    var squares = 0.0;
    for (var base = 0u; base < CHUNK * PIECE / 8u; base += WG) {
        let i8 = base + lid;
        let inside = i8 < CHUNK * PIECE / 8u;
        let v = select(K4, 2u * (chunk * (CHUNK * PIECE / 8u) + i8), inside);
        let a = x_load4(v);
        let b = x_load4(v + 1u);
        squares += square(a) + square(b);
        stage8(i8, normed(v, a, m), normed(v + 1u, b, m), inside, lid);
    }
    return squares;
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let lane = lid % TEAM;
    let unit = (flat_group(group, count) * (WG / TEAM) + lid / TEAM) * ROWS;
    var row: array<u32, VALUES>;
    var acc: array<f32, VALUES>;
    //@unroll
    for (var r = 0u; r < VALUES; r++) {
        row[r] = (r % PARTS) * UNITS + min(unit + r / PARTS, UNITS - 1u);
        acc[r] = 0.0;
    }
    let m = moments(lid);
    var squares = 0.0;
    for (var chunk = 0u; chunk < CHUNKS; chunk++) {
        if (chunk > 0u) { workgroupBarrier(); }
        squares += stage(chunk, lid, m);
        if (NORM == 1u && chunk == CHUNKS - 1u) { publish(squares, lid); }
        workgroupBarrier();
        for (var i = lane; i < CHUNK; i += TEAM * UNROLL) {
            var w: array<vec4<u32>, UNROLL * VALUES>;
            var s: array<vec2<f32>, UNROLL * VALUES>;
            //@unroll
            for (var u = 0u; u < UNROLL; u++) {
                let p = min(chunk * CHUNK + i + u * TEAM, PIECES - 1u);
                //@unroll
                for (var r = 0u; r < VALUES; r++) {
                    w[u * VALUES + r] = weights[row[r] * PIECES + p];
                    s[u * VALUES + r] = piece_scale(row[r], p);
                }
            }
            //@unroll
            for (var u = 0u; u < UNROLL; u++) {
                var pieces: Pieces;
                //@unroll
                for (var r = 0u; r < VALUES; r++) { pieces[r] = w[u * VALUES + r]; }
                let dots = dot_piece(pieces, i + u * TEAM);
                //@unroll
                for (var r = 0u; r < VALUES; r++) {
                    acc[r] += s[u * VALUES + r].x * dots.row[r] + s[u * VALUES + r].y * dots.total;
                }
            }
        }
    }
    var scale = 1.0;
    if (NORM == 1u) { scale = inverseSqrt(published_sum() / f32(K) + EPS); }
    //@unroll
    for (var r = 0u; r < VALUES; r++) { acc[r] = scale * team_sum(acc[r], lid, TEAM); }
    if (lane != 0u) { return; }
    //@unroll
    for (var r = 0u; r < ROWS; r++) {
        if (unit + r < UNITS) {
            let n = FIRST + unit + r;
            var value = acc[r * PARTS];
            if (HAS_BIAS) { value += bias[n]; }
            value = act(value);
            if (PARTS == 2u) {
                var up = acc[r * PARTS + PARTS - 1u];
                if (HAS_BIAS) { up += bias[(N + 3u) / 4u * 4u + n]; }
                value *= up;
            }
            if (HAS_RESIDUAL) { value += residual[n]; }
            if (SOFTCAP > 0.0) { value = soft_cap(value, SOFTCAP); }
            y[n] = value;
        }
    }
}
