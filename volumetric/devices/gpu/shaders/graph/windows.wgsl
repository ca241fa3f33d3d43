// Sliding windows over images of 3 spatial axes (fewer have leading axes of 1): an element of the columns lies at channel c,
// tap t and window w, and is element stride w + dilation t - before of the image. Kernel, stride and dilation are
// constants, because a division by a number that the compiler does not know costs as much as a read.
struct Dims {
    count: u32, channels: u32, windows: u32, spare: u32,
    size: vec4<u32>, before: vec4<u32>, counts: vec4<u32>,
}
@group(0) @binding(13) var<uniform> dims: Dims;

const TAPS: u32 = KERNEL_0 * KERNEL_1 * KERNEL_2;
const STRIDE: vec3<u32> = vec3<u32>(STRIDE_0, STRIDE_1, STRIDE_2);
const DILATION: vec3<u32> = vec3<u32>(DILATION_0, DILATION_1, DILATION_2);

fn split3(i: u32, size: vec4<u32>) -> vec3<u32> {
    let line = i / size.z;
    let plane = line / size.y;
    return vec3<u32>(plane, line - plane * size.y, i - line * size.z);
}
fn join3(i: vec3<u32>, size: vec4<u32>) -> u32 { return (i.x * size.y + i.y) * size.z + i.z; }

fn tap_place(t: u32) -> vec3<u32> { return vec3<u32>(t / (KERNEL_1 * KERNEL_2), t / KERNEL_2 % KERNEL_1, t % KERNEL_2); }

// The most windows along each axis that see one element, and how many these are together.
const SEEN_0: u32 = (KERNEL_0 - 1u) * DILATION_0 / STRIDE_0 + 1u;
const SEEN_1: u32 = (KERNEL_1 - 1u) * DILATION_1 / STRIDE_1 + 1u;
const SEEN_2: u32 = (KERNEL_2 - 1u) * DILATION_2 / STRIDE_2 + 1u;
const SEEN: u32 = SEEN_0 * SEEN_1 * SEEN_2;

// Number `n`, below SEEN, of the windows that may see the element at `place`, counted with what stands before the image:
// from the last to the first, which is the order of the element's taps.
struct Sight { sees: bool, window: u32, tap: u32 }
fn sight(n: u32, place: vec3<u32>) -> Sight {
    let back = vec3<u32>(n / (SEEN_1 * SEEN_2), n / SEEN_2 % SEEN_1, n % SEEN_2);
    let last = min(place / STRIDE, dims.counts.xyz - 1u);
    let window = last - back;  // wraps around below 0
    let i = place - window * STRIDE;
    let t = i / DILATION;
    let kernel = vec3<u32>(KERNEL_0, KERNEL_1, KERNEL_2);
    let sees = all(back <= last) && all(t * DILATION == i) && all(t < kernel);
    return Sight(sees, join3(window, dims.counts), (t.x * KERNEL_1 + t.y) * KERNEL_2 + t.z);
}
