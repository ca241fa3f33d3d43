// IQ4_XS: value = (step * scale) * table[code], a scale for each 32 codes of 4 bits. `scales` has an int8 for each piece of
// a row, then a step for each 8 pieces.
const ROW_BLOCKS: u32 = (PIECES + 7u) / 8u;

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let block = p / 8u;
    let scale = bitcast<i32>(scales[row * GROUPS + p / 4u] << (24u - p % 4u * 8u)) >> 24u;
    let step = unpack2x16float(scales[row * GROUPS + 2u * ROW_BLOCKS + block / 2u])[block % 2u];
    return vec2<f32>(step * f32(scale), 0.0);
}
