// Scales and mins of 6 bits under a step and a floor for each 8 pieces, of Q4_K and Q5_K: the first words of a row of
// `scales`, 4 for each 8 pieces.

// Step and -floor of a block of 8 pieces, times scale and min of one, 6 bits each from bit 12 p of three words on.
fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let at = row * GROUPS + p / 8u * 4u;
    let bit = p % 8u * 12u;
    let word = bit / 32u;
    let both = (scales[at + 1u + word] >> (bit % 32u)) | ((scales[at + min(2u + word, 3u)] << 1u) << (31u - bit % 32u));
    return unpack2x16float(scales[at]) * vec2<f32>(vec2<u32>(both, both >> 6u) & vec2<u32>(63u));
}
