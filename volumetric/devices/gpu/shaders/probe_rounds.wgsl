// Counts the rounds of a long loop, to detect whether the driver ends it early. The count depends on every round, so
// that no compiler can compute it without running them.
@group(0) @binding(0) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(1)
fn main() {
    var count = 0u;
    var noise = found[1];
    for (var i = 0u; i < ROUNDS; i++) {
        noise = noise * 1664525u + 1013904223u;
        count += select(1u, 2u, noise == found[2]);  // 0, which the generator meets once in 2^32 rounds
    }
    found[0] = count;
}
