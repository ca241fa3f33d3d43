// Predicate: unused parts of a result in equal parts need not be computed. A flag of NaN counts as one.
struct Args { first: u32, size: u32 }  // flag of the first part; elements of each
@group(0) @binding(10) var<storage, read> fires: array<u32>;  // the bits of floats

// Whether no element from `first` up to `end` is used. If there are more than a few parts, some are assumed to be used.
fn is_idle(first: u32, end: u32) -> bool {
    let low = first / args.size;
    let high = (end - 1u) / args.size;
    if (high - low >= 4u) { return false; }
    for (var i = 0u; i < 4u; i++) {
        if ((fires[args.first + min(low + i, high)] & 0x7fffffffu) != 0u) { return false; }
    }
    return true;
}
