// Functions of every kernel that are exact to a few units in the last place on every device: the built-in exp and log may
// lose four digits (software adapters do). NaN is detected by its bits: compilers may fold comparisons with NaN.
const QUIET_NAN: u32 = 0x7fc00000u;
const INFINITY: u32 = 0x7f800000u;
const LN2_HIGH: f32 = 0.693359375;  // a multiple of 2^-9: its product with an exponent is exact
const LN2_LOW: f32 = -0.00021219444;

fn nan() -> f32 { var bits = QUIET_NAN; return bitcast<f32>(bits); }  // a variable, as no constant may be NaN
fn infinity() -> f32 { var bits = INFINITY; return bitcast<f32>(bits); }
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > INFINITY; }
fn is_infinite(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) == INFINITY; }
fn is_lowest(x: f32) -> bool { return bitcast<u32>(x) == 0xff800000u; }

// 2^n for -126 <= n <= 127.
fn power_of_2(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }

// e^r for |r| <= ln 2 / 2: Taylor's series to r^7.
fn exponential_near_0(r: f32) -> f32 {
    return 1.0 + r * (1.0 + r * (0.5 + r * (0.16666667 + r * (0.041666668 + r * (0.008333334
        + r * (0.0013888889 + r * 0.0001984127))))));
}

// e^x: 2^n e^r with |r| <= ln 2 / 2. Underflows through subnormals to 0, overflows to infinity.
fn exponential(x: f32) -> f32 {
    let bounded = clamp(x, -106.0, 90.0);
    let n = round(bounded * 1.4426950408889634);
    let p = exponential_near_0((bounded - n * LN2_HIGH) - n * LN2_LOW);
    let whole = i32(n);
    let half = whole / 2;
    return select(p * power_of_2(half) * power_of_2(whole - half), x, is_nan(x));
}

// e^x for x <= 0, and 0 where that is below e^-87: the same numbers for half the instructions, for attention. Added to
// 1.5 * 2^23, a number leaves its nearest integer in the low bits, and NaN some integer or other; r then carries it on.
fn decay(x: f32) -> f32 {
    let bits = bitcast<u32>(max(x, -87.0) * 1.4426950408889634 + 12582912.0);
    let n = f32(bitcast<i32>(bits - 0x4b400000u));
    let p = exponential_near_0((x - n * LN2_HIGH) - n * LN2_LOW);
    return select(p * bitcast<f32>((bits << 23u) + 0x3f800000u), 0.0, x < -87.0);
}

// atanh(f) / f for small |f|, with s = f^2: 9 terms serve f up to 1/3.
fn atanh_ratio(s: f32) -> f32 {
    return 1.0 + s * (0.33333334 + s * (0.2 + s * (0.14285715 + s * (0.11111111 + s * (0.09090909
        + s * (0.07692308 + s * (0.06666667 + s * 0.05882353)))))));
}

// Natural logarithm: x = m 2^e with m within sqrt(2) of 1, log m = 2 atanh((m - 1) / (m + 1)).
fn logarithm(x: f32) -> f32 {
    let tiny = x < 1.1754944e-38;
    let bits = bitcast<u32>(select(x, x * 8388608.0, tiny));
    let shifted = bits - 0x3f3504f3u;  // sqrt(1/2): exponents count from there
    let e = f32(i32(shifted) >> 23u) - select(0.0, 23.0, tiny);
    let m = bitcast<f32>((shifted & 0x7fffffu) + 0x3f3504f3u);
    let f = (m - 1.0) / (m + 1.0);
    let y = e * LN2_HIGH + (2.0 * f * atanh_ratio(f * f) + e * LN2_LOW);
    if (bitcast<u32>(x) == INFINITY) { return x; }
    if ((bitcast<u32>(x) & 0x7fffffffu) == 0u) { return -infinity(); }
    if (x < 0.0 || is_nan(x)) { return nan(); }
    return y;
}

// log(1 + u) for 0 <= u <= 1.
fn log_of_one_plus(u: f32) -> f32 {
    let f = u / (2.0 + u);
    return 2.0 * f * atanh_ratio(f * f);
}

// x^p for x >= 0.
fn power(x: f32, p: f32) -> f32 {
    if (p == 1.0) { return x; }
    if (p == 2.0) { return x * x; }
    return select(exponential(p * logarithm(x)), select(0.0, 1.0, p == 0.0), x == 0.0);
}

// Through e to a negative power: never overflows. Near 0, where 1 - e would cancel, its series to x^9.
fn hyperbolic_tangent(x: f32) -> f32 {
    let e = exponential(-2.0 * abs(x));
    let s = x * x;
    let series = x * (1.0 + s * (-0.33333334 + s * (0.13333334 + s * (-0.053968254 + s * 0.021869488))));
    let y = select(sign(x) * (1.0 - e) / (1.0 + e), series, abs(x) < 0.3);
    return select(y, x, is_nan(x));
}

// sin(x + quarters pi / 2): x = n pi / 2 + r with |r| <= pi / 4, and polynomials; to 1e-7 for |x| <= 8192.
fn turned(x: f32, quarters: i32) -> f32 {
    let n = round(clamp(x, -1e6, 1e6) * 0.63661977);
    let r = ((x - n * 1.5703125) - n * 4.837512969970703125e-4) - n * 7.54978995489188216e-8;
    let s = r * r;
    let sine = r + r * s * (-1.6666654611e-1 + s * (8.3321608736e-3 + s * -1.9515295891e-4));
    let cosine = 1.0 - 0.5 * s + s * s * (4.166664568298827e-2 + s * (-1.388731625493765e-3 + s * 2.443315711809948e-5));
    let place = i32(n) + quarters;
    let y = select(sine, cosine, (place & 1) == 1);
    return select(select(y, -y, (place & 2) == 2), nan(), is_nan(x) || is_infinite(x));
}

fn sign_of(x: f32) -> f32 { return select(sign(x), x, is_nan(x)); }
fn floor_of(x: f32) -> f32 { return select(floor(x), x, is_nan(x)); }

// max and min, and NaN where either is.
fn maximum(a: f32, b: f32) -> f32 { return select(max(a, b), nan(), is_nan(a) || is_nan(b)); }
fn minimum(a: f32, b: f32) -> f32 { return select(min(a, b), nan(), is_nan(a) || is_nan(b)); }

fn logistic(x: f32) -> f32 {
    let e = exponential(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

// erf by Abramowitz and Stegun 7.1.26, as 1 - erf(|z|): absolute error below 1.5e-7.
fn erf_complement(z: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.3275911 * z);
    let p = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    return p * exponential(-z * z);
}

// Standard normal distribution function.
fn normal_below(x: f32) -> f32 {
    let tail = 0.5 * erf_complement(abs(x) * 0.7071067811865476);
    return select(tail, 1.0 - tail, x >= 0.0);
}

// Logits that spoil a softmax: NaN and plus infinity.
fn is_odd(x: f32) -> bool { return is_nan(x) || bitcast<u32>(x) == INFINITY; }

// max(x, 0), and NaN of NaN: of a comparison with 0 some compilers make a maximum, which drops it.
fn positive(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    return select(x, 0.0, bits >= 0x80000000u && bits <= 0xff800000u);
}

fn soft_cap(x: f32, cap: f32) -> f32 {
    return cap * hyperbolic_tangent(x / cap);
}

// log(1 + e^x).
fn softplus(x: f32) -> f32 { return positive(x) + log_of_one_plus(exponential(-abs(x))); }

// Bits of the largest magnitude of four numbers: infinity and NaN are above all others.
fn magnitude_bits(v: vec4<f32>) -> u32 {
    let bits = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
    return max(max(bits.x, bits.y), max(bits.z, bits.w));
}

// The power of two with which numbers up to a biased exponent come near 2^14, within the halves, and the one that undoes it:
// 2^(14 - e) and 2^(e - 14), e = exponent - 127. Zeros, infinity and NaN are not scaled.
fn halving_powers(exponent: f32) -> vec2<f32> {
    let whole = u32(exponent);
    if (whole == 0u || whole >= 255u) { return vec2<f32>(1.0); }
    let e = clamp(i32(whole) - 141, -126, 126);
    return vec2<f32>(power_of_2(-e), power_of_2(e));
}
