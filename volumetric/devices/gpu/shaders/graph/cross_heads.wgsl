// o = softmax((a Wq + bq) (b Wk + bk)^T / sqrt(e)) (b Wv + bv), head by head, of many small parts of one table: a are
// the query rows, b the key and value rows.
//
// A workgroup has up to TILE query rows of a part, and one head. Keys and values are computed and weighed TILE rows at
// a time, in workgroup memory; an invocation computes one vector of ITEMS rows, so that it reads their weights once.
// TEAM invocations share a query row, and join their results at the end. Vectors are of four neighbouring columns: a
// row has WIDTH, of which WIDE are a head's; NEXT of a row are loaded before waiting for the first. All indices are
// clamped.
struct Dims {
    total: u32,   // workgroups
    blocks: u32,  // of a part and head
    heads: u32,
    parts: u32,   // with the same weights
    n: u32, m: u32,
    last: u32,    // row of the table
    scale: f32,
}

@group(0) @binding(0) var<storage, read> rows: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> asks: array<u32>;
@group(0) @binding(2) var<storage, read> tells: array<u32>;
@group(0) @binding(3) var<storage, read> w_q: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> w_k: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> w_v: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read> b_q: array<vec4<f32>>;
@group(0) @binding(7) var<storage, read> b_k: array<vec4<f32>>;
@group(0) @binding(8) var<storage, read> b_v: array<vec4<f32>>;
@group(0) @binding(9) var<storage, read> seen: array<f32>;  // (m, n)
@group(0) @binding(11) var<storage, read_write> o: array<vec4<f32>>;
@group(0) @binding(13) var<uniform> dims: Dims;

const ROW: u32 = WIDE + 1u;  // an odd stride spreads rows over banks

var<workgroup> queries: array<vec4<f32>, TILE * ROW>;
var<workgroup> keys: array<vec4<f32>, TILE * ROW>;
var<workgroup> values: array<vec4<f32>, TILE * ROW>;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    if (id >= dims.total) { return; }
    let begin = id % dims.blocks * TILE;
    let head = id / dims.blocks % dims.heads;
    let part = id / (dims.blocks * dims.heads);
    let family = part / dims.parts;
    let of_part = part * dims.n;
    let wide = 4u * WIDTH;
    if (is_idle((of_part + begin) * wide, (of_part + min(begin + TILE, dims.n)) * wide)) { return; }
    //@rounds TILE * WIDE / (WG * ITEMS) + 1
    for (var base = lid; base < TILE * WIDE; base += WG * ITEMS) {
        let column = head * WIDE + base % WIDE;
        var x: array<u32, ITEMS>;
        var q: array<vec4<f32>, ITEMS>;
        //@unroll
        for (var t = 0u; t < ITEMS; t++) {
            x[t] = min(asks[of_part + min(begin + (base + t * WG) / WIDE, dims.n - 1u)], dims.last) * WIDTH;
            q[t] = b_q[family * WIDTH + column];
        }
        var w = family * (4u * WIDTH) * WIDTH + column;
        for (var first_k = 0u; first_k < WIDTH; first_k += NEXT) {
            //@unroll
            for (var next = 0u; next < NEXT; next++) {
                let k = first_k + next;
                var v: array<vec4<f32>, ITEMS>;
                //@unroll
                for (var t = 0u; t < ITEMS; t++) { v[t] = rows[x[t] + k]; }
                //@unroll
                for (var j = 0u; j < 4u; j++) {
                    let by = w_q[w + j * WIDTH];
                    //@unroll
                    for (var t = 0u; t < ITEMS; t++) { q[t] = fma(vec4<f32>(v[t][j]), by, q[t]); }
                }
                w += 4u * WIDTH;
            }
        }
        //@unroll
        for (var t = 0u; t < ITEMS; t++) { queries[(base + t * WG) / WIDE * ROW + base % WIDE] = q[t] * dims.scale; }
    }
    workgroupBarrier();
    let lane = lid % TEAM;
    let row = lid / TEAM;
    var top = LOWEST;
    var total = 0.0;
    var query: array<vec4<f32>, WIDE>;
    var read: array<vec4<f32>, WIDE>;
    //@unroll
    for (var c = 0u; c < WIDE; c++) {
        query[c] = queries[row * ROW + c];
        read[c] = vec4<f32>(0.0);
    }
    //@rounds dims.m / TILE + 1
    for (var first = 0u; first < dims.m; first += TILE) {
        //@rounds TILE * WIDE / (WG * ITEMS) + 1
        for (var base = lid; base < TILE * WIDE; base += WG * ITEMS) {
            let column = head * WIDE + base % WIDE;
            var x: array<u32, ITEMS>;
            var key: array<vec4<f32>, ITEMS>;
            var value: array<vec4<f32>, ITEMS>;
            //@unroll
            for (var t = 0u; t < ITEMS; t++) {
                let told = part * dims.m + min(first + (base + t * WG) / WIDE, dims.m - 1u);
                x[t] = min(tells[told], dims.last) * WIDTH;
                key[t] = b_k[family * WIDTH + column];
                value[t] = b_v[family * WIDTH + column];
            }
            var w = family * (4u * WIDTH) * WIDTH + column;
            for (var first_k = 0u; first_k < WIDTH; first_k += NEXT) {
                //@unroll
                for (var next = 0u; next < NEXT; next++) {
                    let k = first_k + next;
                    var v: array<vec4<f32>, ITEMS>;
                    //@unroll
                    for (var t = 0u; t < ITEMS; t++) { v[t] = rows[x[t] + k]; }
                    //@unroll
                    for (var j = 0u; j < 4u; j++) {
                        let by_key = w_k[w + j * WIDTH];
                        let by_value = w_v[w + j * WIDTH];
                        //@unroll
                        for (var t = 0u; t < ITEMS; t++) {
                            key[t] = fma(vec4<f32>(v[t][j]), by_key, key[t]);
                            value[t] = fma(vec4<f32>(v[t][j]), by_value, value[t]);
                        }
                    }
                    w += 4u * WIDTH;
                }
            }
            //@unroll
            for (var t = 0u; t < ITEMS; t++) {
                let at = (base + t * WG) / WIDE * ROW + base % WIDE;
                keys[at] = key[t];
                values[at] = value[t];
            }
        }
        workgroupBarrier();
        //@rounds TILE / TEAM + 1
        for (var j = lane; j < min(TILE, dims.m - first); j += TEAM) {
            var met = vec4<f32>(0.0);
            //@unroll
            for (var c = 0u; c < WIDE; c++) { met = fma(query[c], keys[j * ROW + c], met); }
            let score = met.x + met.y + met.z + met.w;
            var shown = true;
            if (MASKED) { shown = seen[(first + j) * dims.n + min(begin + row, dims.n - 1u)] != 0.0; }
            if (shown) {
                let higher = max(top, score);
                let left = decay(top - higher);
                let weight = decay(score - higher);
                top = higher;
                total = total * left + weight;
                //@unroll
                for (var c = 0u; c < WIDE; c++) { read[c] = fma(vec4<f32>(weight), values[j * ROW + c], read[c] * left); }
            }
        }
        workgroupBarrier();
    }
    let most = team_max(top, lid, TEAM);
    let left = decay(top - most);
    total = team_sum(total * left, lid, TEAM);
    let by = left / select(total, 1.0, total == 0.0);
    //@unroll
    for (var c = 0u; c < WIDE; c++) {
        var sum: vec4<f32>;
        //@unroll
        for (var f = 0u; f < 4u; f++) { sum[f] = team_sum(read[c][f] * by, lid, TEAM); }
        if (lane == c % TEAM && begin + row < dims.n) { o[(of_part + begin + row) * WIDTH + head * WIDE + c] = sum; }
    }
}
