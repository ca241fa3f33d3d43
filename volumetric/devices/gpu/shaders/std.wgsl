// Shared by every kernel: the control block, index helpers, parts of attention and norms.

// The values that change from call to call; the argmax kernel advances them on the device while decoding. Sequences
// with a single row come first ("singles", as when decoding); rows of longer sequences follow, split in blocks within a
// sequence.
struct Control {
    rows: u32,     // of this call
    singles: u32,  // of these
    blocks: u32,   // of the others
    pieces: u32,
    near: array<vec4<u32>, NEAR_PAGES / 4u>,  // the first pages of the only single
    // Of a sequence: the position of its first row, the line of its page table, its end row and its first row. Singles
    // have a row each, and so does every sequence of a call without blocks.
    places: array<vec4<u32>, PLACES>,
    owners: array<vec4<u32>, LISTED_ROWS / 8u>,    // of each row the number of its sequence, 16 bits, if there are blocks
    starts: array<vec4<u32>, LISTED_BLOCKS / 4u>,  // of each block its first row, and in the high half that of its sequence
}
@group(0) @binding(14) var<uniform> ctl: Control;

// Calls of more rows have one sequence, whose last block continues.
const PLACES: u32 = 512u;
const LISTED_ROWS: u32 = 4096u;
const LISTED_BLOCKS: u32 = 1024u;
const NEAR_PAGES: u32 = 56u;

// Position of a row; the line, the end row and the first row of its sequence.
fn row_place(row: u32) -> vec4<u32> {
    var sequence = row;
    if (ctl.blocks > 0u) {
        let at = min(row, LISTED_ROWS - 1u);
        sequence = (ctl.owners[at / 8u][at / 2u % 4u] >> (at % 2u * 16u)) & 0xffffu;
    }
    let place = ctl.places[min(sequence, PLACES - 1u)];
    return vec4<u32>(place.x + row - place.w, place.yzw);
}

// First row of a block, and of the sequence it belongs to.
fn block_start(block: u32, each: u32) -> vec2<u32> {
    let at = min(block, LISTED_BLOCKS - 1u);
    let start = ctl.starts[at / 4u][at % 4u];
    return vec2<u32>((start & 0xffffu) + (block - at) * each, start >> 16u);
}

const LOWEST: f32 = -0x1.fffffep+127;  // of all numbers
const SMALLEST_NORMAL: f32 = 1.2e-38;

// A workgroup's share of a product: a block of outputs, the rows from `first` up to `end`, of which it takes one batch,
// and the matrix of a stack.
struct Share {
    block: u32,
    first: u32,
    end: u32,
    matrix: u32,
}

// Grids over 65535 groups are folded into two dimensions.
fn flat_group(group: vec3<u32>, count: vec3<u32>) -> u32 {
    return group.x + group.y * count.x;
}

// Zero the elements of vector `v` of a row of `width` that lie beyond its end: rows are padded to whole vectors.
fn mask4(value: vec4<f32>, v: u32, width: u32) -> vec4<f32> {
    let at = vec4<u32>(4u * v) + vec4<u32>(0u, 1u, 2u, 3u);
    return select(vec4<f32>(0.0), value, at < vec4<u32>(width));
}

// Weight of a score in a softmax whose largest is `top`. Kernels write LOWEST for masked positions; it is detected by
// its bits, because a comparison would take NaN for it.
fn attention_weight(score: f32, top: f32) -> f32 {
    return select(decay(score - top), 0.0, bitcast<u32>(score) == bitcast<u32>(LOWEST));
}

// Variance from the mean of squares about a value `shift` off the mean. Rounding may leave less than 0; `max` would
// lose NaN.
fn variance_about(mean_square: f32, shift: f32) -> f32 {
    if (bitcast<u32>(mean_square) == INFINITY) { return mean_square; }  // infinity, which the shift's square may be too
    let variance = mean_square - shift * shift;
    // Below 0 by its bits: some compilers make a maximum of the comparison, which drops NaN.
    let bits = bitcast<u32>(variance);
    return select(variance, 0.0, bits > 0x80000000u && bits <= 0xff800000u);
}
