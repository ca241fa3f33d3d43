// TQ1_0 and TQ2_0: value = step * (code - 1), codes of 2 bits with a step for each 256; `scales` has two steps a word.
alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return two_bits(row, p); }

// Less 1 in each byte: the bit above the code keeps what is borrowed from reaching the next byte.
fn piece_bytes(w: Piece, j: u32) -> u32 { return ((low_bits(w, j) | 0x80808080u) - 0x01010101u) ^ 0x80808080u; }

fn piece_scale(row: u32, p: u32) -> vec2<f32> {
    let block = p / 8u;
    return vec2<f32>(unpack2x16float(scales[row * GROUPS + block / 2u])[block % 2u], 0.0);
}
