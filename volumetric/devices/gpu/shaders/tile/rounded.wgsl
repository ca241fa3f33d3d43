// Weights rounded to halves: elements 4 j … 4 j + 3 of a piece, whose parts may hold even and odd elements in turn.
fn tile_part(w: Piece, s: vec2<f32>, j: u32) -> Halves4 {
    if (!INTERLEAVED) { return halves(s.x * piece_part(w, j) + s.y); }
    let even = piece_part(w, j / 2u * 2u);
    let odd = piece_part(w, j / 2u * 2u + 1u);
    let first = vec4<f32>(even.x, odd.x, even.y, odd.y);
    let second = vec4<f32>(even.z, odd.z, even.w, odd.w);
    return halves(s.x * select(first, second, j % 2u == 1u) + s.y);
}
