// IQ4_NL: value = step * table[code], codes of 4 bits in groups of 32. A piece is a group; `scales` has two steps a word.
fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    return vec2<f32>(unpack2x16float(scales[row * GROUPS + p / 2u])[p % 2u], 0.0);
}
