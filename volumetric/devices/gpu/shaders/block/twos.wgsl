// Pieces of 32 codes of which the two low bits lie in 16 bytes for each 64: codes i, 16 + i, 32 + i and 48 + i in byte i.
const LOADS: u32 = (PIECES + 1u) / 2u;

fn two_bits(row: u32, p: u32) -> vec4<u32> { return weights[row * LOADS + p / 2u] >> vec4<u32>(p % 2u * 4u); }

// Those of codes 4j … 4j + 3.
fn low_bits(w: vec4<u32>, j: u32) -> u32 { return (w[j % 4u] >> (j / 4u * 2u)) & 0x03030303u; }
