// The fragments of `matrix/tint` in plain WGSL, for GPUs without matrix units: LANES neighbouring invocations hold the sums
// of a fragment, each 256 / LANES neighbours of a row. Sides stay in workgroup memory, which no invocation changes between
// the barriers around their use.
alias Halves4 = vec2<u32>;

// `turned`: rows of the tile are k.
struct Left { at: u32, stride: u32, turned: bool }

struct Right { at: u32, stride: u32, turned: bool }

const EACH: u32 = 256u / LANES;

alias Sums = array<f32, EACH>;

fn halves(v: vec4<f32>) -> Halves4 { return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)); }

fn halves_of_bits(bits: vec2<u32>) -> Halves4 { return bits; }

fn load_left(at: u32, stride: u32) -> Left { return Left(at, stride, false); }

fn load_right(at: u32, stride: u32) -> Right { return Right(at, stride, false); }

fn load_left_turned(at: u32, stride: u32) -> Left { return Left(at, stride, true); }

fn load_right_turned(at: u32, stride: u32) -> Right { return Right(at, stride, true); }

fn numbers(v: Halves4) -> vec4<f32> { return vec4<f32>(unpack2x16float(v.x), unpack2x16float(v.y)); }

// Elements 4 k … 4 k + 3 of row, or column, `which` of a side.
fn four(at: u32, stride: u32, turned: bool, which: u32, k: u32) -> vec4<f32> {
    if (!turned) { return numbers(tile[at + which * stride + k]); }
    let first = at + 4u * k * stride + which / 4u;
    return vec4<f32>(
        number(first, which),
        number(first + stride, which),
        number(first + 2u * stride, which),
        number(first + 3u * stride, which),
    );
}

fn number(i: u32, e: u32) -> f32 { return unpack2x16float(tile[i][e / 2u % 2u] >> (16u * (e % 2u))).x; }

fn multiply_add(left: Left, right: Right, sums: Sums, lane: u32) -> Sums {
    var more = sums;
    for (var k = 0u; k < 4u; k++) {
        let a = four(left.at, left.stride, left.turned, lane * EACH / 16u, k);
        for (var e = 0u; e < EACH; e++) {
            more[e] += dot(a, four(right.at, right.stride, right.turned, lane * EACH % 16u + e, k));
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
