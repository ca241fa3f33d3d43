enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);

alias Halves4 = vec4<f16>;
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Sums = subgroup_matrix_result<f32, 16, 16>;
fn halves(v: vec4<f32>) -> Halves4 { return vec4<f16>(v); }
fn halves_of_bits(bits: vec2<u32>) -> Halves4 { return bitcast<vec4<f16>>(bits); }
fn load_left(at: u32, stride: u32) -> Left { return subgroupMatrixLoad<Left, row_major>(&tile, at, stride); }
fn load_right(at: u32, stride: u32) -> Right { return subgroupMatrixLoad<Right, col_major>(&tile, at, stride); }
fn load_right_turned(at: u32, stride: u32) -> Right { return subgroupMatrixLoad<Right, row_major>(&tile, at, stride); }
fn multiply_add(left: Left, right: Right, sums: Sums, lane: u32) -> Sums {
    return subgroupMatrixMultiplyAccumulate(left, right, sums);
}
fn store_sums(sums: Sums, at: u32, stride: u32, lane: u32) {
    subgroupMatrixStore<row_major>(&staged, at, sums, stride);
}
fn load_sums(at: u32, lane: u32) -> Sums { return subgroupMatrixLoad<Sums, row_major>(&staged, at, 16u); }
