// Index of the largest element of row 0, the lowest among equals. As a decoding step it also feeds the network: the index
// becomes the next token, and position and step advance, so that replaying the same commands makes the next token.
// Two launches: PARTIAL groups each scan a slice of x, then one group scans their winners.
@group(0) @binding(0) var<storage, read> x: array<f32>;                   // (WIDTH)
@group(0) @binding(1) var<storage, read_write> winners: array<vec2<u32>>; // (PARTIAL): value bits, index
@group(0) @binding(2) var<storage, read_write> token: array<u32>;
@group(0) @binding(3) var<storage, read_write> control: array<u32>;

var<workgroup> best_value: array<f32, WG>;
var<workgroup> best_index: array<u32, WG>;

fn better(value: f32, index: u32, than: f32, than_index: u32) -> bool {
    return value > than || (value == than && index < than_index);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    var value = LOWEST;
    var index = 0xffffffffu;
    if (FINAL) {
        for (var i = lid; i < PARTIAL; i += WG) {
            let w = winners[i];
            if (better(bitcast<f32>(w.x), w.y, value, index)) { value = bitcast<f32>(w.x); index = w.y; }
        }
    } else {
        for (var i = group.x * WG + lid; i < WIDTH; i += PARTIAL * WG) {
            if (better(x[i], i, value, index)) { value = x[i]; index = i; }
        }
    }
    best_value[lid] = value;
    best_index[lid] = index;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step = step / 2u) {
        if (lid < step) {
            let v = best_value[lid + step];
            let i = best_index[lid + step];
            if (better(v, i, best_value[lid], best_index[lid])) { best_value[lid] = v; best_index[lid] = i; }
        }
        workgroupBarrier();
    }
    if (lid != 0u) { return; }
    if (FINAL) {
        token[0] = select(best_index[0], 0u, best_index[0] >= WIDTH);
        control[0] += 1u;
        control[2] += 1u;
        control[3] += 1u;
    } else {
        winners[group.x] = vec2<u32>(bitcast<u32>(best_value[0]), best_index[0]);
    }
}
