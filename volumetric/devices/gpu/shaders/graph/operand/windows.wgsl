// The right side of a product as the sliding windows of images, which are read where they lie instead of being copied into
// columns first. Rows of the columns count (channel, taps), their columns the windows; with TRANS_B the product takes them
// the other way round. Axes that an image lacks have size 1.
const TAPS: u32 = KERNEL_0 * KERNEL_1 * KERNEL_2;
const AREA: u32 = SIZE_0 * SIZE_1 * SIZE_2;

fn right_group() -> u32 { return select(dims.k, dims.n, TRANS_B) / TAPS * AREA; }

fn right(start: u32, k: u32, n: u32) -> f32 {
    let row = select(k, n, TRANS_B);
    let window = select(n, k, TRANS_B);
    let tap = row % TAPS;
    // Unsigned numbers wrap around below 0, and are then beyond every size.
    let i = STRIDE_0 * (window / (COUNT_1 * COUNT_2)) + DILATION_0 * (tap / (KERNEL_1 * KERNEL_2)) - BEFORE_0;
    let j = STRIDE_1 * (window / COUNT_2 % COUNT_1) + DILATION_1 * (tap / KERNEL_2 % KERNEL_1) - BEFORE_1;
    let l = STRIDE_2 * (window % COUNT_2) + DILATION_2 * (tap % KERNEL_2) - BEFORE_2;
    let inside = i < SIZE_0 && j < SIZE_1 && l < SIZE_2;
    let v = b[start + row / TAPS * AREA + select(0u, (i * SIZE_1 + j) * SIZE_2 + l, inside)];
    return select(0.0, v, inside);
}
