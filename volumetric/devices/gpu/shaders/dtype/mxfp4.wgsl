// MXFP4: value = 2^(e - 128) * table[code], codes of 4 bits in groups of 32, the table that of E2M1 doubled. A piece is a
// group; `scales` has a byte e for each.
const TABLE_0: u32 = 0x03020100u;
const TABLE_1: u32 = 0x0c080604u;
const TABLE_2: u32 = 0xfdfeff00u;
const TABLE_3: u32 = 0xf4f8fafcu;

// The float32 with exponent e - 1; below that the numbers are subnormal and shift instead.
fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let e = (scales[row * GROUPS + p / 4u] >> (p % 4u * 8u)) & 255u;
    return vec2<f32>(bitcast<f32>(select((e - 1u) << 23u, 0x200000u << e, e < 2u)), 0.0);
}
