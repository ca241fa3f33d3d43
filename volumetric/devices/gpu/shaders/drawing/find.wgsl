// The bin in which the largest scores of a row reach a goal, and a look at all scores of the row.
@group(0) @binding(3) var<storage, read> binned: array<vec2<u32>>;       // (rows, GROUPS, BINS)
// Bits of the largest depth that is drawn, the index of the last score that has it and is drawn, a state, a token.
@group(0) @binding(4) var<storage, read_write> cuts: array<vec4<u32>>;   // (rows)

const OWN: u32 = BINS / WG;  // bins of an invocation

var<workgroup> found: array<u32, 4>;  // bin, and the sum before it: high word, low word
fn bin_sum(row: u32, b: u32) -> vec2<u32> {
    var sum = vec2<u32>(0u);
    for (var g = 0u; g < GROUPS; g++) { sum = sum_of(sum, binned[(row * GROUPS + g) * BINS + b]); }
    return sum;
}

// The sum of all bins; writes `found`, whose bin is BINS if no bin reaches the goal, `part` of all or `count`.
fn find_bin(row: u32, part: vec2<u32>, count: u32, lid: u32) -> vec2<u32> {
    if (lid == 0u) { found[0] = BINS; }
    var own = vec2<u32>(0u);
    for (var i = 0u; i < OWN; i++) { own = sum_of(own, bin_sum(row, lid * OWN + i)); }
    let sums = running_sum(own, lid);
    var goal = vec2<u32>(0u, count);
    if (count == 0u) { goal = part_of(sums[1], part); }
    var before = difference(sums[0], own);
    if (less_than(before, goal) && !less_than(sums[0], goal)) {
        for (var i = 0u; i < OWN; i++) {
            let after = sum_of(before, bin_sum(row, lid * OWN + i));
            if (less_than(before, goal) && !less_than(after, goal)) {
                found[0] = lid * OWN + i;
                found[1] = before.x;
                found[2] = before.y;
            }
            before = after;
        }
    }
    workgroupBarrier();
    return sums[1];
}

// Four vectors of a row, WG vectors apart: the reads do not wait for one another.
fn four_vectors(row: u32, v: u32) -> array<vec4<u32>, 4> {
    var fours = array<vec4<u32>, 4>();
    //@unroll
    for (var j = 0; j < 4; j++) { fours[j] = x[row * VECTORS + min(v + u32(j) * WG, VECTORS - 1u)]; }
    return fours;
}

// Call the kernel's `look` with each score of a row that counts, and its turn.
fn walk(row: u32, top: f32, plan: Plan, turn: u32, lid: u32) {
    for (var v = lid; v < VECTORS; v += 4u * WG) {
        let fours = four_vectors(row, v);
        //@unroll
        for (var j = 0; j < 4; j++) {
            //@unroll
            for (var i = 0; i < 4; i++) {
                let index = 4u * (v + u32(j) * WG) + u32(i);
                let d = depth(top, fours[j][i]);
                if (counts(index, d)) { look(index, fours[j][i], d, plan, turn); }
            }
        }
    }
}

// Whether a score is of the row at all, and not -inf.
fn counts(index: u32, d: f32) -> bool {
    return index < WIDTH && bitcast<u32>(d) <= 0x7f7fffffu;
}
