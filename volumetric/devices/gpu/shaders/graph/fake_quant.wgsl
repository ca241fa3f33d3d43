// y = the values that a scheme can hold, by groups of neighbours in a row that share a scale: decode(encode(x)), to the last
// bit. TEAM neighbouring invocations a group. They gather what the rule (a prelude) may ask of a group; each then derives the
// scale, and rounds its share of the elements.
struct Dims { groups: u32, width: u32, group: u32, row_groups: u32 }

@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(13) var<uniform> dims: Dims;

const CODE: Kind = Kind(CODE_BITS, CODE_LEAST, CODE_GREATEST);     // of the codes, where they are floats
const SCALE: Kind = Kind(SCALE_BITS, SCALE_LEAST, SCALE_GREATEST);
const SMALLEST: u32 = SCALE_SMALLEST;                              // the least scale above 0, as float32

struct Group {
    size: u32,
    peak: u32,    // bits of the largest finite magnitude
    first: u32,   // bits of the first number of this magnitude; only with FIRST
    low: u32,     // bits of the least and of the greatest number; only with RANGE
    high: u32,
    odd: bool,    // there are NaN or infinities; only with ODD
    mixed: bool,  // there are magnitudes other than 0 and the peak; only with SUM
    total: Long,  // sum of all magnitudes; only with SUM
}

// What a rule makes of a group: what is stored, and what codes are taken against.
struct Scale { scale: u32, offset: u32, divisor: u32, start: u32 }

fn unknown_zero() -> u32 { return dims.groups >> 31u; }

var<workgroup> gathered: array<u32, WG>;

// The greatest of a team.
fn most(value: u32, lid: u32) -> u32 {
    gathered[lid] = value;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step = step / 2u) {
        if (lid % TEAM < step) { gathered[lid] = max(gathered[lid], gathered[lid + step]); }
        workgroupBarrier();
    }
    let found = gathered[lid - lid % TEAM];
    workgroupBarrier();
    return found;
}

fn all_of(value: u32, lid: u32) -> u32 {
    gathered[lid] = value;
    workgroupBarrier();
    for (var step = TEAM / 2u; step > 0u; step = step / 2u) {
        if (lid % TEAM < step) { gathered[lid] += gathered[lid + step]; }
        workgroupBarrier();
    }
    let found = gathered[lid - lid % TEAM];
    workgroupBarrier();
    return found;
}

// Sum of the magnitudes of a group, whose largest is `peak`: in 80 bits below it, by limbs of 16 bits. That is more than
// float64 holds: where float64's sum depends on the order of its terms, this one is nearer to the truth.
fn sum_of(start: u32, size: u32, peak: u32, lid: u32) -> Long {
    var limbs: array<u32, 7>;
    let top = number(peak).e;
    for (var i = lid % TEAM; i < size; i += TEAM) {
        let n = number(magnitude(x[start + i]));
        let by = min(56 - (top - n.e), 56);  // more only in infinity and NaN, whose sum does not count
        let m = select(select(n.m >> 8u, 0u, by < -23) >> u32(clamp(-by, 0, 23)), 0u, n.m == 0u);
        let at = u32(max(by, 0)) / 16u;
        let off = u32(max(by, 0)) % 16u;
        let low = (m & 0xffffu) << off;
        let high = (m >> 16u) << off;
        limbs[at] += low & 0xffffu;
        limbs[at + 1u] += (low >> 16u) + (high & 0xffffu);
        limbs[at + 2u] += high >> 16u;
    }
    var carry = 0u;
    //@unroll
    for (var i = 0u; i < 7u; i++) {
        let whole = all_of(limbs[i], lid);
        let sum = whole + carry;
        limbs[i] = sum & 0xffffu;
        carry = (sum >> 16u) + select(0u, 0x10000u, sum < whole);
    }
    // The value is the limbs times 2^(top - 79); the topmost of the 112 bits that are not 0 become a Long.
    let found = long_normal(false, top - 79 + 111, (limbs[6] << 16u) | limbs[5], (limbs[4] << 16u) | limbs[3]);
    let lowest = long_normal(false, top - 79 + 63, limbs[2], (limbs[1] << 16u) | limbs[0]);
    return plus(found, lowest);
}

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups) * (WG / TEAM) + lid / TEAM;
    let which = min(id, dims.groups - 1u);
    let column = which % dims.row_groups * dims.group;
    let start = which / dims.row_groups * dims.width + column;
    let size = min(dims.group, dims.width - column);
    let lane = lid % TEAM;
    var found: Group;
    found.size = size;
    var peak = 0u;
    var low = 0u;
    var high = 0u;
    var odd = 0u;
    for (var i = lane; i < size; i += TEAM) {
        let bits = x[start + i];
        if (magnitude(bits) >= 0x7f800000u) { odd = 1u; } else { peak = max(peak, magnitude(bits)); }
        high = max(high, order_of(bits));
        low = max(low, ~order_of(bits));
    }
    found.peak = most(peak, lid);
    if (RANGE) {
        found.high = of_order(most(high, lid));
        found.low = of_order(~most(low, lid));
    }
    if (ODD) { found.odd = most(odd, lid) == 1u; }
    var first = 0u;
    var mixed = 0u;
    for (var i = lane; i < size; i += TEAM) {
        let size_of = magnitude(x[start + i]);
        if (size_of == found.peak) { first = max(first, ~i); }
        if (size_of != 0u && size_of != found.peak) { mixed = 1u; }
    }
    if (FIRST) { found.first = x[start + min(~most(first, lid), size - 1u)]; }
    if (SUM) { found.mixed = most(mixed, lid) == 1u; }
    if (SUM) { found.total = sum_of(start, size, found.peak, lid); }
    let scale = scale_of(found);
    if (id < dims.groups) {
        for (var i = lane; i < size; i += TEAM) { y[start + i] = held(x[start + i], scale); }
    }
}

// A positive scale as it is stored: rounded, but not to 0.
fn stored(n: Num) -> u32 {
    if (n.m == 0u) { return 0u; }
    return max(saturated(nearest(n, SCALE), SCALE), SMALLEST);
}

// A number as it is stored, and as codes are taken against it: beyond the stored type's range, the same.
fn storable(bits: u32) -> vec2<u32> {
    let rounded = nearest(number(bits), SCALE);
    let kept = saturated(rounded, SCALE);
    return vec2<u32>(kept, select(bits, kept, magnitude(rounded) > SCALE.greatest));
}

// 1 / d, or 0 where that is infinite.
fn inverse_of(d: u32) -> u32 {
    if (magnitude(d) < SMALLEST_INVERTIBLE) { return 0u; }
    return single_quotient(0x3f800000u, d);
}

fn scaled_code(code: i32, scale: u32) -> u32 {
    if (code == 0) { return scale & SIGN; }  // compilers may make -0 of a 0 that was rounded to
    if (abs(code) < 0x1000000) { return saturated(single_product(bitcast<u32>(f32(code)), scale), SINGLE); }
    var n = number_of_integer(u32(abs(code)));
    n.negative = code < 0;
    return saturated(single(short(times(n, number(scale)))), SINGLE);
}

// code * scale + offset, where float64 rounds the sum first.
fn affine_code(code: u32, scale: u32, offset: u32) -> u32 {
    if (SCALE.bits == 10u && code < 256u) {  // exact products, and sums without subnormals
        let sum = bitcast<u32>(f32(code) * bitcast<f32>(scale) + bitcast<f32>(offset));
        return select(sum, 0u, magnitude(sum) == 0u);
    }
    var part = Long(false, 0, 0u, 0u);
    if (code != 0u && scale != 0u) { part = times(number_of_integer(code), number(scale)); }
    let sum = single(short(double(plus(part, long(number(offset))))));
    return select(saturated(sum, SINGLE), 0u, magnitude(sum) == 0u);  // 0 + -0 is 0
}
