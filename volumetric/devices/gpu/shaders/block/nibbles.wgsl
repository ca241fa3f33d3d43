// Pieces of 32 codes of 4 bits and nothing else: codes i and 16 + i in the low and high half of byte i.
alias Piece = vec4<u32>;

fn load_piece(row: u32, p: u32) -> Piece { return weights[row * PIECES + p]; }
