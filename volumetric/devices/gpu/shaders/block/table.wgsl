// Codes of 4 bits that name one of the 16 int8 values in TABLE_0 … TABLE_3.

// The values of four codes, each the low half of a byte.
fn look_up(codes: u32) -> u32 {
    let at = vec4<u32>(codes, codes >> 8u, codes >> 16u, codes >> 24u) & vec4<u32>(15u);
    let pairs = select(vec4<u32>(TABLE_0), vec4<u32>(TABLE_1), (at & vec4<u32>(4u)) != vec4<u32>(0u));
    let others = select(vec4<u32>(TABLE_2), vec4<u32>(TABLE_3), (at & vec4<u32>(4u)) != vec4<u32>(0u));
    let words = select(pairs, others, at >= vec4<u32>(8u));
    let bytes = (words >> ((at & vec4<u32>(3u)) << vec4<u32>(3u))) & vec4<u32>(255u);
    return bytes.x | (bytes.y << 8u) | (bytes.z << 16u) | (bytes.w << 24u);
}

fn piece_bytes(w: Piece, j: u32) -> u32 { return look_up((w[j % 4u] >> (j / 4u * 4u)) & 0x0f0f0f0fu); }
