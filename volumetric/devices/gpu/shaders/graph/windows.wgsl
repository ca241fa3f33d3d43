// Sliding windows over images of 3 spatial axes (fewer have leading axes of 1): an element of the columns lies at channel c,
// tap t and window w, and is element stride w + dilation t - before of the image.
struct Dims {
    count: u32, channels: u32, taps: u32, windows: u32,
    size: vec4<u32>, kernel: vec4<u32>, stride: vec4<u32>, dilation: vec4<u32>, before: vec4<u32>, counts: vec4<u32>,
}
@group(0) @binding(13) var<uniform> dims: Dims;

fn split3(i: u32, size: vec4<u32>) -> vec3<u32> {
    return vec3<u32>(i / size.z / size.y, i / size.z % size.y, i % size.z);
}
fn join3(i: vec3<u32>, size: vec4<u32>) -> u32 { return (i.x * size.y + i.y) * size.z + i.z; }

// The windows that see an element at `place`, counted with what stands before the image: the first, and how many.
struct Seen { first: vec3<u32>, many: vec3<u32> }
fn windows_of(place: vec3<u32>) -> Seen {
    let reach = (dims.kernel.xyz - 1u) * dims.dilation.xyz;
    let first = (place - min(place, reach) + dims.stride.xyz - 1u) / dims.stride.xyz;
    let end = min(place / dims.stride.xyz + 1u, dims.counts.xyz);
    return Seen(first, end - min(end, first));
}
