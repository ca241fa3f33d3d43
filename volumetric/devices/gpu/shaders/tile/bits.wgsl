// Weights that are halves already.
fn tile_part(w: Piece, s: vec2<f32>, j: u32) -> Halves4 { return halves_of_bits(select(w.xy, w.zw, j == 1u)); }
