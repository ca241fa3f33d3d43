// Floating-point arithmetic in integers, rounded to nearest even, subnormals included: the same bits on every device, which
// hardware division, fused multiply-add and flushed subnormals do not give. Numbers are finite here.

// (-1)^negative * m * 2^(e - 31): the top bit of m is set unless the number is 0, its lowest bit is set if anything was lost.
struct Num { negative: bool, e: i32, m: u32 }
// The same with 64 bits, hi before lo: (-1)^negative * (hi 2^32 + lo) * 2^(e - 63).
struct Long { negative: bool, e: i32, hi: u32, lo: u32 }
// A type of floats: bits behind the leading one, minus its least normal exponent, and the bits of its greatest as float32.
struct Kind { bits: u32, least: u32, greatest: u32 }

const SINGLE: Kind = Kind(23u, 126u, 0x7f7fffffu);
const SIGN: u32 = 0x80000000u;

fn magnitude(bits: u32) -> u32 { return bits & 0x7fffffffu; }

fn number_of_integer(m: u32) -> Num {
    if (m == 0u) { return Num(false, 0, 0u); }
    let zeros = countLeadingZeros(m);
    return Num(false, 31 - i32(zeros), m << zeros);
}

fn number(bits: u32) -> Num {
    var n = number_of_integer(bits & 0x7fffffu);
    n.e -= 149;
    if ((bits & 0x7f800000u) != 0u) { n = Num(false, i32((bits >> 23u) & 0xffu) - 127, (bits << 8u) | SIGN); }
    n.negative = bits >= SIGN;
    return n;
}

// The nearest number of a kind, as float32 bits; beyond its greatest, something greater than that.
fn nearest(n: Num, kind: Kind) -> u32 {
    let sign = select(0u, SIGN, n.negative);
    let below = max(-i32(kind.least) - n.e, 0);
    let dropped = 31 - i32(kind.bits) + below;
    if (n.m == 0u || dropped > 32) { return sign; }
    let whole = dropped == 32;
    var q = select(n.m >> u32(dropped), 0u, whole);
    let rest = select(n.m << u32(32 - dropped), n.m, whole);
    if (rest > SIGN || (rest == SIGN && (q & 1u) == 1u)) { q++; }
    if (q == 0u) { return sign; }
    let unit = n.e - 31 + dropped;  // q counts 2^unit
    let top = 31 - i32(countLeadingZeros(q));
    if (unit + top > 127) { return sign | 0x7f800000u; }
    if (unit + top < -126) { return sign | (q << u32(unit + 149)); }
    return sign | (u32(unit + top + 127) << 23u) | ((q << u32(23 - top)) & 0x7fffffu);
}

fn saturated(bits: u32, kind: Kind) -> u32 { return (bits & SIGN) | min(magnitude(bits), kind.greatest); }

fn single(n: Num) -> u32 { return nearest(n, SINGLE); }

// 32 x 32 bits, exactly.
fn product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let one = (a >> 16u) * (b & 0xffffu);
    let two = (a & 0xffffu) * (b >> 16u);
    let middle = (low >> 16u) + (one & 0xffffu) + (two & 0xffffu);
    return vec2<u32>((a >> 16u) * (b >> 16u) + (one >> 16u) + (two >> 16u) + (middle >> 16u),
        (middle << 16u) | (low & 0xffffu));
}

fn long_normal(negative: bool, e: i32, hi: u32, lo: u32) -> Long {
    if (hi == 0u && lo == 0u) { return Long(negative, 0, 0u, 0u); }
    var h = hi;
    var l = lo;
    var at = e;
    if (h == 0u) { h = l; l = 0u; at -= 32; }
    let zeros = countLeadingZeros(h);
    if (zeros > 0u) {
        h = (h << zeros) | (l >> (32u - zeros));
        l = l << zeros;
        at -= i32(zeros);
    }
    return Long(negative, at, h, l);
}

fn long(n: Num) -> Long { return Long(n.negative, n.e, n.m, 0u); }
fn short(n: Long) -> Num { return Num(n.negative, n.e, n.hi | select(0u, 1u, n.lo != 0u)); }

fn times(a: Num, b: Num) -> Long {
    let p = product(a.m, b.m);
    return long_normal(a.negative != b.negative, a.e + b.e + 1, p.x, p.y);
}

// a / b for b of at most 24 bits: eight bits of the quotient at a time.
fn over(a: Long, b: Num) -> Long {
    let by = b.m >> 8u;
    var hi = 0u;
    var lo = 0u;
    var rest = 0u;
    for (var i = 0u; i < 11u; i++) {  // the 8 bytes of a, and 22 bits behind them
        let width = select(8u, 6u, i == 10u);
        var next = 0u;
        if (i < 4u) { next = (a.hi >> (24u - 8u * i)) & 0xffu; }
        if (i >= 4u && i < 8u) { next = (a.lo >> (24u - 8u * (i - 4u))) & 0xffu; }
        rest = (rest << width) | next;
        hi = (hi << width) | (lo >> (32u - width));
        lo = (lo << width) | (rest / by);
        rest = rest % by;
    }
    var q = long_normal(a.negative != b.negative, a.e - b.e + 1, hi, lo);
    q.lo |= select(0u, 1u, rest != 0u);
    return q;
}

fn shifted_right(n: Long, by: u32) -> vec2<u32> {
    if (by == 0u) { return vec2<u32>(n.hi, n.lo); }
    if (by >= 64u) { return vec2<u32>(0u, select(0u, 1u, (n.hi | n.lo) != 0u)); }
    var h = n.hi;
    var l = n.lo;
    var lost = 0u;
    if (by >= 32u) { lost = l; l = h; h = 0u; }
    let rest = by % 32u;
    if (rest > 0u) {
        lost |= l << (32u - rest);
        l = (l >> rest) | (h << (32u - rest));
        h = h >> rest;
    }
    return vec2<u32>(h, l | select(0u, 1u, lost != 0u));
}

// a + b for numbers of at most 60 bits; what is lost sets the lowest bit.
fn plus(a: Long, b: Long) -> Long {
    if (a.hi == 0u) { return b; }
    if (b.hi == 0u) { return a; }
    let swap = b.e > a.e || (b.e == a.e && (b.hi > a.hi || (b.hi == a.hi && b.lo > a.lo)));
    var big = a;
    var little = b;
    if (swap) { big = b; little = a; }
    let other = shifted_right(little, u32(big.e - little.e));
    if (big.negative == little.negative) {
        let l = big.lo + other.y;
        let carry = select(0u, 1u, l < big.lo);
        let without = big.hi + other.x;
        let h = without + carry;
        if (without >= big.hi && h >= carry) { return Long(big.negative, big.e, h, l); }
        return Long(big.negative, big.e + 1, (h >> 1u) | SIGN, (l >> 1u) | (h << 31u) | (l & 1u));
    }
    let borrow = select(0u, 1u, big.lo < other.y);
    let h = big.hi - other.x - borrow;
    let l = big.lo - other.y;
    if (h == 0u && l == 0u) { return Long(false, 0, 0u, 0u); }
    return long_normal(big.negative, big.e, h, l);
}

// Rounded as float64 is: to 53 bits.
fn double(n: Long) -> Long {
    let rest = n.lo & 0x7ffu;
    var l = n.lo & ~0x7ffu;
    var h = n.hi;
    var e = n.e;
    if (rest > 0x400u || (rest == 0x400u && (l & 0x800u) != 0u)) {
        l += 0x800u;
        if (l == 0u) { h++; }
        if (l == 0u && h == 0u) { h = SIGN; e++; }
    }
    return Long(n.negative, e, h, l);
}

// The nearest integer of |n|, at most `limit`.
fn integer(n: Long, limit: u32) -> u32 {
    if (n.hi == 0u || n.e < -1) { return 0u; }
    if (n.e > 31) { return limit; }
    let fraction = u32(31 - n.e);
    let half = fraction == 32u;
    var q = select(n.hi >> (fraction & 31u), 0u, half);
    var rest = n.hi;
    if (!half) { rest = select(n.hi << ((32u - fraction) & 31u), 0u, fraction == 0u); }
    let tail = n.lo;
    var up = rest > SIGN || (rest == SIGN && (tail != 0u || (q & 1u) == 1u));
    if (fraction == 0u) { up = tail > SIGN || (tail == SIGN && (q & 1u) == 1u); }
    if (up && q < limit) { q++; }
    return min(q, limit);
}

// a / b for both of at most 24 bits.
fn ratio(a: Num, b: Num) -> Num {
    let by = b.m >> 8u;
    var q = (a.m >> 8u) / by;
    var rest = (a.m >> 8u) % by;
    for (var i = 0u; i < 4u; i++) {  // 31 more bits: the quotient is above a half
        let width = select(8u, 7u, i == 3u);
        rest = rest << width;
        q = (q << width) | (rest / by);
        rest = rest % by;
    }
    let zeros = countLeadingZeros(q);
    return Num(a.negative != b.negative, a.e - b.e - i32(zeros), (q << zeros) | select(0u, 1u, rest != 0u));
}

// Hardware rounds products, sums and differences as in IEEE 754, unless subnormals are flushed: it is used if neither
// the operands nor the result can be subnormal. `unknown_zero` keeps a product from being contracted with a sum.
fn single_product(a: u32, b: u32) -> u32 {
    let e_a = (a >> 23u) & 0xffu;
    let e_b = (b >> 23u) & 0xffu;
    if (min(e_a, e_b) > 0u && e_a + e_b > 130u && e_a + e_b < 378u) {
        return bitcast<u32>(bitcast<f32>(a) * bitcast<f32>(b)) ^ unknown_zero();
    }
    if (magnitude(a) == 0u || magnitude(b) == 0u) { return (a ^ b) & SIGN; }
    return single(short(times(number(a), number(b))));
}

fn single_quotient(a: u32, b: u32) -> u32 {
    if (magnitude(a) == 0u) { return (a ^ b) & SIGN; }
    return single(ratio(number(a), number(b)));
}

fn single_difference(a: u32, b: u32) -> u32 {
    if (coarse(a) && coarse(b)) { return bitcast<u32>(bitcast<f32>(a) - bitcast<f32>(b)) ^ unknown_zero(); }
    return single(short(plus(long(number(a)), long(number(b ^ SIGN)))));
}

// Whether sums and differences of such numbers are 0 or not subnormal.
fn coarse(bits: u32) -> bool { return magnitude(bits) == 0u || ((bits >> 23u) & 0xffu) > 27u; }

// Integers in the order of the floats that they are the bits of.
fn order_of(bits: u32) -> u32 { return select(bits | SIGN, ~bits, bits >= SIGN); }
fn of_order(place: u32) -> u32 { return select(~place, place & 0x7fffffffu, place >= SIGN); }
