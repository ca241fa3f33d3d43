const WG: u32 = 64u;
const WIDTH: u32 = 8u;
const SUBGROUP: u32 = 32u;

struct Control {
    rows: u32,
    singles: u32,
    blocks: u32,
    pieces: u32,
    near: array<vec4<u32>, NEAR_PAGES / 4u>,
    places: array<vec4<u32>, PLACES>,
    owners: array<vec4<u32>, LISTED_ROWS / 8u>,
    starts: array<vec4<u32>, LISTED_BLOCKS / 4u>,
}
const PLACES: u32 = 512u;
const LISTED_ROWS: u32 = 4096u;
const LISTED_BLOCKS: u32 = 1024u;
const NEAR_PAGES: u32 = 56u;
const LOWEST: f32 = -0x1.fffffep+127;
const SMALLEST_NORMAL: f32 = 1.2e-38;
struct Share {
    block: u32,
    first: u32,
    end: u32,
    matrix: u32,
}
const QUIET_NAN: u32 = 0x7fc00000u;
const INFINITY: u32 = 0x7f800000u;
const LN2_HIGH: f32 = 0.693359375;
const LN2_LOW: f32 = -0.00021219444;
fn nan() -> f32 { var bits = QUIET_NAN; return bitcast<f32>(bits); }
fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > INFINITY; }
fn power_of_2(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }
fn exponential_near_0(r: f32) -> f32 {
    return 1.0 + r * (1.0 + r * (0.5 + r * (0.16666667 + r * (0.041666668 + r * (0.008333334
        + r * (0.0013888889 + r * 0.0001984127))))));
}
fn exponential(x: f32) -> f32 {
    let bounded = clamp(x, -106.0, 90.0);
    let n = round(bounded * 1.4426950408889634);
    let p = exponential_near_0((bounded - n * LN2_HIGH) - n * LN2_LOW);
    let whole = i32(n);
    let half = whole / 2;
    return select(p * power_of_2(half) * power_of_2(whole - half), x, is_nan(x));
}
fn is_odd(x: f32) -> bool { return is_nan(x) || bitcast<u32>(x) == INFINITY; }
var<workgroup> team_scratch: array<f32, WG / SUBGROUP + 1u>;
fn lane_sum(value: f32, size: u32) -> f32 {
    var v = value;
    if (size > 1u && SUBGROUP > 1u) { v += subgroupShuffleXor(v, 1u); }
    if (size > 2u && SUBGROUP > 2u) { v += subgroupShuffleXor(v, 2u); }
    if (size > 4u && SUBGROUP > 4u) { v += subgroupShuffleXor(v, 4u); }
    if (size > 8u && SUBGROUP > 8u) { v += subgroupShuffleXor(v, 8u); }
    if (size > 16u && SUBGROUP > 16u) { v += subgroupShuffleXor(v, 16u); }
    return v;
}
fn lane_max(value: f32, size: u32) -> f32 {
    var v = value;
    if (size > 1u && SUBGROUP > 1u) { v = max(v, subgroupShuffleXor(v, 1u)); }
    if (size > 2u && SUBGROUP > 2u) { v = max(v, subgroupShuffleXor(v, 2u)); }
    if (size > 4u && SUBGROUP > 4u) { v = max(v, subgroupShuffleXor(v, 4u)); }
    if (size > 8u && SUBGROUP > 8u) { v = max(v, subgroupShuffleXor(v, 8u)); }
    if (size > 16u && SUBGROUP > 16u) { v = max(v, subgroupShuffleXor(v, 16u)); }
    return v;
}
fn team_sum(value: f32, lid: u32, size: u32) -> f32 {
    let v = lane_sum(value, size);
    if (size <= SUBGROUP) { return v; }
    if (lid % SUBGROUP == 0u) { team_scratch[lid / SUBGROUP] = v; }
    workgroupBarrier();
    let first = (lid / size) * (size / SUBGROUP);
    var total = 0.0;
    for (var i = 0u; i < size / SUBGROUP; i++) { total += team_scratch[first + i]; }
    workgroupBarrier();
    return total;
}
fn team_max(value: f32, lid: u32, size: u32) -> f32 {
    let v = lane_max(value, size);
    if (size <= SUBGROUP) { return v; }
    if (lid % SUBGROUP == 0u) { team_scratch[lid / SUBGROUP] = v; }
    workgroupBarrier();
    let first = (lid / size) * (size / SUBGROUP);
    var total = LOWEST;
    for (var i = 0u; i < size / SUBGROUP; i++) { total = max(total, team_scratch[first + i]); }
    workgroupBarrier();
    return total;
}
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;
@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let start = group.y * STRIDE;
    var top = LOWEST;
    var odd = 0.0;
    for (var i = lid; i < WIDTH; i += WG) {
        let v = x[start + i];
        if (is_odd(v)) { odd = 1.0; } else { top = max(top, v); }
    }
    top = team_max(top, lid, WG);
    odd = team_max(odd, lid, WG);
    var sum = 0.0;
    for (var i = lid; i < WIDTH; i += WG) { sum += exponential(x[start + i] - top); }
    sum = max(team_sum(sum, lid, WG), SMALLEST_NORMAL);
    for (var i = lid; i < WIDTH; i += WG) {
        y[start + i] = select(exponential(x[start + i] - top) / sum, nan(), odd > 0.0);
    }
}
