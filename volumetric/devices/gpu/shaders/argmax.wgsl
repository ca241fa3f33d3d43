// Index of the largest element of each row, the lowest among equals. As a decoding step it also feeds the network: the index
// becomes the row's next token, and its position advances, so that replaying the same commands makes the next token.
// If the largest is not a finite number, a code above every index replaces the token (NOT_A_NUMBER, …): the host ends
// decoding when it reads the code, and the embedding of a step in flight finds no such row and does nothing.
// Two launches: PARTIAL groups per row each scan a slice of it, then one group per row scans their maxima.
// Elements are compared as integers: compilers may assume that floats are never NaN, and drivers may flush tiny ones.
@group(0) @binding(0) var<storage, read> x: array<u32>;                   // (rows, STRIDE): bits of f32
@group(0) @binding(1) var<storage, read_write> winners: array<vec2<u32>>; // (rows, PARTIAL): rank, index
@group(0) @binding(2) var<storage, read_write> token: array<u32>;
@group(0) @binding(3) var<storage, read_write> control: array<u32>;

const NOT_A_NUMBER: u32 = 0xffffffffu;
const INFINITE: u32 = 0xfffffffeu;
const NONE_POSSIBLE: u32 = 0xfffffffdu;

const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;
const PLACES_AT: u32 = 60u;  // words before `Control.places`
const SIGN: u32 = 0x80000000u;

var<workgroup> best_rank: array<u32, WG>;
var<workgroup> best_index: array<u32, WG>;

// An integer in the order of the floats: 0 for "no element", both zeros equal, every NaN the highest.
fn rank(bits: u32) -> u32 {
    if ((bits & ~SIGN) > INFINITY) { return 0xffffffffu; }
    return select(bits | SIGN, SIGN - (bits & ~SIGN), bits >= SIGN);
}

fn better(value: u32, index: u32, than: u32, than_index: u32) -> bool {
    return value > than || (value == than && index < than_index);
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    var value = 0u;
    var index = 0xffffffffu;
    if (FINAL) {
        for (var i = lid; i < PARTIAL; i += WG) {
            let w = winners[group.y * PARTIAL + i];
            if (better(w.x, w.y, value, index)) { value = w.x; index = w.y; }
        }
    } else {
        for (var i = group.x * WG + lid; i < WIDTH; i += PARTIAL * WG) {
            let r = rank(x[group.y * STRIDE + i]);
            if (better(r, i, value, index)) { value = r; index = i; }
        }
    }
    best_rank[lid] = value;
    best_index[lid] = index;
    workgroupBarrier();
    for (var step = WG / 2u; step > 0u; step = step / 2u) {
        if (lid < step) {
            let v = best_rank[lid + step];
            let i = best_index[lid + step];
            if (better(v, i, best_rank[lid], best_index[lid])) { best_rank[lid] = v; best_index[lid] = i; }
        }
        workgroupBarrier();
    }
    if (lid != 0u) { return; }
    if (FINAL) {
        let top = best_rank[0];
        var found = best_index[0];
        if (top == rank(SIGN | INFINITY)) { found = NONE_POSSIBLE; }
        if (top == rank(INFINITY)) { found = INFINITE; }
        if (top > rank(INFINITY)) { found = NOT_A_NUMBER; }
        token[group.y] = found;
        control[PLACES_AT + 4u * group.y] += 1u;
    } else {
        winners[group.y * PARTIAL + group.x] = vec2<u32>(best_rank[0], best_index[0]);
    }
}
