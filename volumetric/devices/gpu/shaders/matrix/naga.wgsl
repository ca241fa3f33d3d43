// The fragments of `matrix/tint` in the dialect of naga, which calls them cooperative matrices: A and B are the sides, C the
// sums; `…T` loads and stores rows, the others columns, `stride` elements of the array apart. naga 29 and 30 emit an
// expression for a stride too late, so each is a `let` or a parameter.
alias Halves4 = vec4<f16>;
alias Left = coop_mat16x16<f16, A>;
alias Right = coop_mat16x16<f16, B>;
alias Sums = coop_mat16x16<f32, C>;

fn halves(v: vec4<f32>) -> Halves4 { return vec4<f16>(v); }

fn halves_of_bits(bits: vec2<u32>) -> Halves4 {
    let low = unpack2x16float(bits.x);
    let high = unpack2x16float(bits.y);
    return vec4<f16>(vec4<f32>(low, high));
}

fn load_left(at: u32, stride: u32) -> Left { return coopLoadT<Left>(&tile[at], stride); }

fn load_right(at: u32, stride: u32) -> Right { return coopLoad<Right>(&tile[at], stride); }

fn load_left_turned(at: u32, stride: u32) -> Left { return coopLoad<Left>(&tile[at], stride); }

fn load_right_turned(at: u32, stride: u32) -> Right { return coopLoadT<Right>(&tile[at], stride); }

fn multiply_add(left: Left, right: Right, sums: Sums, lane: u32) -> Sums { return coopMultiplyAdd(left, right, sums); }

fn store_sums(sums: Sums, at: u32, stride: u32, lane: u32) {
    coopStoreT(sums, &staged[at], stride);
}

fn load_sums(at: u32, lane: u32) -> Sums {
    let stride = 16u;
    return coopLoadT<Sums>(&staged[at], stride);
}
