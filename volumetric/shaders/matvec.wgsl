// y[n] = cap(residual[n] + act(W[n, :] . norm(x) + bias[n])), or act(gate) * up with two weight rows for each output.
//
// A team of TEAM invocations owns ROWS outputs and splits K; TEAMS teams share x, which is staged CHUNK pieces at a time
// in workgroup memory. Staged x lies in PLANES planes, one for each vec4 of a piece, so that neighbouring invocations,
// which hold neighbouring pieces, read neighbouring vectors whatever the weight format (no bank conflicts).
// RMS norm costs no pass: sum x^2 accumulates while x is staged and scales the dot products at the end.
struct Args { first: u32, units: u32 }  // first output of this shard, outputs in it

@group(0) @binding(1) var<storage, read> weights: array<vec4<u32>>;   // (PARTS * units, PIECES)
@group(0) @binding(2) var<storage, read> scales: array<u32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;            // (PARTS, N padded to whole vectors)
@group(0) @binding(4) var<storage, read> norm_params: array<vec4<f32>>;  // gain (K4), then bias (K4)
@group(0) @binding(5) var<storage, read> residual: array<f32>;        // (N)
@group(0) @binding(6) var<storage, read_write> y: array<f32>;         // (N)

const K4: u32 = (K + 3u) / 4u;
const PLANES: u32 = PIECE / 4u;
const EIGHTHS: u32 = max(PIECE / 8u, 1u);
const VALUES: u32 = ROWS * PARTS;

var<workgroup> xs: array<vec4<f32>, PLANES * PLANE>;

// Put 8 consecutive elements, number `i8` of the chunk, into their planes.
fn stage8(i8: u32, a: vec4<f32>, b: vec4<f32>) {
    if (PLANES == 1u) {
        xs[2u * i8] = a;
        xs[2u * i8 + 1u] = b;
    } else {
        let at = 2u * (i8 % EIGHTHS) * PLANE + i8 / EIGHTHS;
        xs[at] = select(a, vec4<f32>(a.xz, b.xz), INTERLEAVED);
        xs[at + PLANE] = select(b, vec4<f32>(a.yw, b.yw), INTERLEAVED);
    }
}

fn square(v: vec4<f32>) -> f32 { return dot(v, v); }

// Mean and reciprocal deviation of x, for layer norm alone.
fn moments(lid: u32) -> vec2<f32> {
    if (NORM != 2u) { return vec2<f32>(0.0, 1.0); }
    var sum = 0.0;
    for (var v = lid; v < K4; v += WG) { sum += dot(x_load4(v), vec4<f32>(1.0)); }
    let mean = team_sum(sum, lid, WG) / f32(K);
    var spread = 0.0;
    for (var v = lid; v < K4; v += WG) { spread += square(mask4(x_load4(v) - mean, v, K)); }
    return vec2<f32>(mean, inverseSqrt(team_sum(spread, lid, WG) / f32(K) + EPS));
}

fn normed(v: u32, value: vec4<f32>, m: vec2<f32>) -> vec4<f32> {
    var r = value;
    if (NORM == 2u) { r = mask4((r - m.x) * m.y, v, K); }
    if (HAS_NORM_WEIGHT && NORM != 0u) { r *= norm_params[min(v, K4 - 1u)] + NORM_UNIT; }
    if (HAS_NORM_BIAS && NORM != 0u) { r += norm_params[K4 + min(v, K4 - 1u)]; }
    return select(r, vec4<f32>(0.0), v >= K4);
}

// Stage one chunk of norm(x); returns this invocation's share of sum x^2.
fn stage(chunk: u32, lid: u32, m: vec2<f32>) -> f32 {
    var squares = 0.0;
    for (var i8 = lid; i8 < CHUNK * PIECE / 8u; i8 += WG) {
        let v = 2u * (chunk * (CHUNK * PIECE / 8u) + i8);
        let a = x_load4(v);
        let b = x_load4(v + 1u);
        squares += square(a) + square(b);
        stage8(i8, normed(v, a, m), normed(v + 1u, b, m));
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
        row[r] = (r % PARTS) * args.units + min(unit + r / PARTS, args.units - 1u);
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
                var part: array<f32, VALUES>;
                var total = 0.0;
                //@unroll
                for (var r = 0u; r < VALUES; r++) { part[r] = 0.0; }
                //@unroll
                for (var j = 0u; j < PIECE / 4u; j++) {
                    let v = xs[j * PLANE + i + u * TEAM];
                    if (HAS_OFFSET) { total += dot(v, vec4<f32>(1.0)); }
                    //@unroll
                    for (var r = 0u; r < VALUES; r++) { part[r] += dot(piece_part(w[u * VALUES + r], j), v); }
                }
                //@unroll
                for (var r = 0u; r < VALUES; r++) {
                    acc[r] += s[u * VALUES + r].x * part[r] + s[u * VALUES + r].y * total;
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
        if (unit + r < args.units) {
            let n = args.first + unit + r;
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
