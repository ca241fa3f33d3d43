// Predicate: rows for which a gate gives a branch no weight need none of its products. A weight of NaN counts as one.
@group(0) @binding(10) var<storage, read> gate: array<u32>;  // (rows, GATE_STRIDE), the bits of floats

fn is_idle(first: u32, end: u32) -> bool {
    for (var i = 0u; i < GUARDED; i++) {
        let row = min(first + i, end - 1u);
        if ((gate[row * GATE_STRIDE + GATE_COLUMN] & 0x7fffffffu) != 0u) { return false; }
    }
    return true;
}
