// Weights of a draw: 2**(-d / (t ln 2)) of how far a score is below the largest of its row, as whole numbers of 64 bits (high
// word, low word), the largest score having ONE. Sums of whole numbers have no order: a row's draw depends on its own numbers
// alone, and how far it may be off one in float64 can be told beforehand.
//
// A weight is off by less than 3.7 and more than -1 units of 2**-32 of itself, and by 1 of the last place: 1.7 units by the
// exponent's and the table's last places, 2 by the product of both. The part of a sum that a running sum is, is then off by
// less than r (1 - r) 4.7 2**-32 of the whole: `margin` has 2**-31 of it, and the last places.
@group(0) @binding(0) var<storage, read> x: array<vec4<u32>>;        // (rows, VECTORS): bits of f32
@group(0) @binding(1) var<storage, read> winners: array<vec2<u32>>;  // (rows, PARTIAL): see argmax.wgsl
// Powers 2**(-i/64), 16 vectors; then of each row 3 vectors, see `Plan`, and NUMBERS parts of 2**64, two a vector: those of its
// draws, that at a position among them by the remainder.
@group(0) @binding(2) var<storage, read> plans: array<vec4<u32>>;

const VECTORS: u32 = (WIDTH + 3u) / 4u;
const ONE: vec2<u32> = vec2<u32>(4096u, 0u);  // 2**44
const LAST_PLACE: u32 = 44u;
const LN2: u32 = 0xb17217f8u;  // 2**32 ln 2
const TABLE: u32 = 16u;
const ROW: u32 = 3u + NUMBERS / 2u;
const ALL: u32 = 0xffffffffu;
const FINE: u32 = 512u;  // bins of 1/64 of a power of two; those beyond have 1/4

// Flags; without DRAWN and WITHHELD the largest is taken.
const DRAWN: u32 = 1u;
const BY_WEIGHT: u32 = 2u;  // top-p
const WITHHELD: u32 = 4u;   // the row is left to the host
const ADJUSTED: u32 = 8u;   // its scores were changed: if they allow no choice, the host reports why
// States of `cuts`
const USABLE: u32 = 0u;
const DOUBTFUL: u32 = 1u;
const DECIDED: u32 = 2u;

struct Plan {
    flags: u32,
    high: u32,           // 1 / (t ln 2) = (256 high + low) 2**(118 - shift)
    low: u32,
    shift: u32,
    top_k: u32,          // 0: off
    top_p: vec2<u32>,    // of 2**64
    deepest: u32,        // bits of the largest d that is drawn
    fold: f32,           // d times this is a place among the bins
}

fn plan_of(row: u32) -> Plan {
    let at = TABLE + row * ROW;
    let a = plans[at];
    let b = plans[at + 1u];
    return Plan(a.x, a.y, a.z, a.w, b.x, b.yz, b.w, bitcast<f32>(plans[at + 2u].x));
}

// The number of the draw after the row at `position` of its sequence.
fn number_at(row: u32, position: u32) -> vec2<u32> {
    let i = position % NUMBERS;
    let two = plans[TABLE + row * ROW + 3u + i / 2u];
    return select(two.xy, two.zw, i % 2u == 1u);
}

fn sum_of(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.y + b.y;
    return vec2<u32>(a.x + b.x + select(0u, 1u, low < a.y), low);
}

fn difference(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x - select(0u, 1u, a.y < b.y), a.y - b.y);
}

fn less_than(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x < b.x || (a.x == b.x && a.y < b.y);
}

fn moved_right(v: vec2<u32>, by: u32) -> vec2<u32> {
    if (by == 0u) { return v; }
    if (by >= 64u) { return vec2<u32>(0u); }
    if (by >= 32u) { return vec2<u32>(0u, v.x >> (by - 32u)); }
    return vec2<u32>(v.x >> by, (v.y >> by) | (v.x << (32u - by)));
}

// `part` / 2**64 of v.
fn part_of(v: vec2<u32>, part: vec2<u32>) -> vec2<u32> {
    let one = product(v.y, part.x);
    let two = product(v.x, part.y);
    var middle = sum_of(vec2<u32>(0u, product(v.y, part.y).x), vec2<u32>(0u, one.y));
    middle = sum_of(middle, vec2<u32>(0u, two.y));
    let high = sum_of(product(v.x, part.x), vec2<u32>(0u, one.x));
    return sum_of(sum_of(high, vec2<u32>(0u, two.x)), vec2<u32>(0u, middle.x));
}

// Maximum deviation of a place among weights of this sum from one in float64.
fn margin(whole: vec2<u32>) -> vec2<u32> {
    return sum_of(moved_right(whole, 31u), vec2<u32>(0u, WIDTH + 2u));
}

// Whether two places are too close to determine which comes first.
fn near(a: vec2<u32>, b: vec2<u32>, doubt: vec2<u32>) -> bool {
    let apart = difference(a, b);
    let back = difference(b, a);
    return !less_than(doubt, apart) || !less_than(doubt, back);
}

fn weigh(d: f32, plan: Plan) -> vec2<u32> {
    let bits = bitcast<u32>(d);
    let exponent = bits >> 23u;
    if (exponent == 0u) { return ONE; }
    let m = (bits & 0x7fffffu) | 0x800000u;
    let a = product(m, plan.high);
    let p = sum_of(vec2<u32>((a.x << 8u) | (a.y >> 24u), a.y << 8u), vec2<u32>(0u, m * plan.low));
    if (exponent > plan.shift) { return vec2<u32>(0u); }
    let y = moved_right(p, plan.shift - exponent);  // 2**32 d / (t ln 2)
    if (y.x > LAST_PLACE) { return vec2<u32>(0u); }
    let place = y.y >> 26u;
    let q = product(y.y << 6u, LN2).x;  // 2**38 times how far the exponential is from 1, but for its square and beyond
    let z = f32(q) * 0x1p-38;
    let less = q - u32(z * z * (0.5 - z * (0.16666667 - z * 0.041666668)) * 0x1p+38);
    let power = plans[place / 4u][place % 4u];
    let mantissa = power - (product(power, less).x >> 6u);
    return moved_right(vec2<u32>(mantissa >> 20u, mantissa << 12u), y.x);
}

// The bits of the float that has this rank, see argmax.wgsl.
fn bits_of(rank: u32) -> u32 {
    return select(0x80000000u | (0x80000000u - rank), rank & 0x7fffffffu, rank >= 0x80000000u);
}

fn rank_of(bits: u32) -> u32 {
    return select(bits | 0x80000000u, 0x80000000u - (bits & 0x7fffffffu), bits >= 0x80000000u);
}

var<workgroup> best: array<vec2<u32>, PARTIAL>;

// Rank and index of the largest score of a row.
fn largest_of(row: u32, lid: u32) -> vec2<u32> {
    if (lid < PARTIAL) { best[lid] = winners[row * PARTIAL + lid]; }
    workgroupBarrier();
    for (var step = PARTIAL / 2u; step > 0u; step = step / 2u) {
        if (lid < step) {
            let a = best[lid];
            let b = best[lid + step];
            if (b.x > a.x || (b.x == a.x && b.y < a.y)) { best[lid] = b; }
        }
        workgroupBarrier();
    }
    return best[0];
}

// Whether the largest score is a finite number.
fn usable(rank: u32) -> bool {
    return rank > rank_of(0xff800000u) && rank < rank_of(0x7f800000u);
}

// How far a score is below the largest, rounded to float32.
fn depth(top: f32, bits: u32) -> f32 {
    return max(top - bitcast<f32>(bits), 0.0);
}

fn bin_of(v: f32) -> u32 {
    if (v < f32(FINE)) { return u32(v); }
    return FINE + u32(min((v - f32(FINE)) * 0.0625, f32(BINS - FINE - 1u)));
}

var<workgroup> running: array<vec2<u32>, WG>;

// The sum of `own` of the invocations up to this one, and of all.
fn running_sum(own: vec2<u32>, lid: u32) -> array<vec2<u32>, 2> {
    running[lid] = own;
    workgroupBarrier();
    //@rounds 10
    for (var step = 1u; step < WG; step = step * 2u) {
        var sum = running[lid];
        if (lid >= step) { sum = sum_of(sum, running[lid - step]); }
        workgroupBarrier();
        running[lid] = sum;
        workgroupBarrier();
    }
    return array<vec2<u32>, 2>(running[lid], running[WG - 1u]);
}
