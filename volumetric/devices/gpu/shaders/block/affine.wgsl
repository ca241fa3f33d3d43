// Block formats with a floor: value = scale * code + offset, codes unsigned; both are of `piece_scale`.
const PIECE: u32 = 32u;
const INTERLEAVED: bool = false;
const HAS_OFFSET: bool = true;
const SCALED: bool = true;
const HALVES: bool = false;

fn half_weight(w: Piece, h: u32) -> i32 { return 1; }

fn piece_part(w: Piece, j: u32) -> vec4<f32> { return vec4<f32>(unpack4xU8(piece_bytes(w, j))); }

fn w_load4(row: u32, k4: u32) -> vec4<f32> {
    let p = k4 / 8u;
    let s = piece_scale(row, p);
    return s.x * piece_part(load_piece(row, p), k4 % 8u) + s.y;
}
