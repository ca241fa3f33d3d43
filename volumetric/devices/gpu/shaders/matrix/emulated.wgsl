// The fragments of `matrix/tint` in plain WGSL, for GPUs without matrix units: LANES neighbouring invocations hold the sums
// of a fragment, each 256 / LANES neighbours of a row. Sides stay in workgroup memory, which no invocation changes between
// the barriers around their use.
alias Halves4 = vec2<u32>;

struct Left { at: u32, stride: u32 }

struct Right { at: u32, stride: u32 }

struct RightRows { at: u32, stride: u32 }

const EACH: u32 = 256u / LANES;

alias Sums = array<f32, EACH>;

fn halves(v: vec4<f32>) -> Halves4 { return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)); }

fn halves_of_bits(bits: vec2<u32>) -> Halves4 { return bits; }

fn load_left(at: u32, stride: u32) -> Left { return Left(at, stride); }

fn load_right(at: u32, stride: u32) -> Right { return Right(at, stride); }

fn load_right_rows(at: u32, stride: u32) -> RightRows { return RightRows(at, stride); }

fn numbers(v: Halves4) -> vec4<f32> { return vec4<f32>(unpack2x16float(v.x), unpack2x16float(v.y)); }

fn multiply_add(left: Left, right: Right, sums: Sums, lane: u32) -> Sums {
    var more = sums;
    let row = left.at + lane * EACH / 16u * left.stride;
    for (var k = 0u; k < 4u; k++) {
        let a = numbers(tile[row + k]);
        for (var e = 0u; e < EACH; e++) {
            more[e] += dot(a, numbers(tile[right.at + (lane * EACH % 16u + e) * right.stride + k]));
        }
    }
    return more;
}

fn multiply_add_rows(left: Left, right: RightRows, sums: Sums, lane: u32) -> Sums {
    var more = sums;
    let row = left.at + lane * EACH / 16u * left.stride;
    let column = right.at + lane * EACH % 16u / 4u;
    for (var k = 0u; k < 4u; k++) {
        let a = numbers(tile[row + k]);
        let source = column + 4u * k * right.stride;
        for (var e = 0u; e < EACH / 4u; e++) {
            var v = a.x * numbers(tile[source + e]);
            v += a.y * numbers(tile[source + right.stride + e]);
            v += a.z * numbers(tile[source + 2u * right.stride + e]);
            v += a.w * numbers(tile[source + 3u * right.stride + e]);
            more[4u * e] += v.x;
            more[4u * e + 1u] += v.y;
            more[4u * e + 2u] += v.z;
            more[4u * e + 3u] += v.w;
        }
    }
    return more;
}

fn store_sums(sums: Sums, at: u32, stride: u32, lane: u32) {
    let first = at + lane * EACH / 16u * stride + lane * EACH % 16u;
    for (var e = 0u; e < EACH; e++) { staged[first + e] = sums[e]; }
}

fn load_sums(at: u32, lane: u32) -> Sums {
    var sums: Sums;
    for (var e = 0u; e < EACH; e++) { sums[e] = staged[at + lane * EACH + e]; }
    return sums;
}
