// Block formats without a floor: value = scale * code in int8. The scale of a piece is x of `piece_scale`.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = false;
const SCALED: bool = true;
const HALVES: bool = false;

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xI8(piece_bytes(w, j))); }

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    return piece_scale(row, p).x * piece_part(load_piece(row, p), k4 % 8u);
}
