// Contents of the buffer `given` of a recurrent kernel, in order: h0 and OTHERS more states, each (batch, HIDDEN); if
// ARRIVED, the gradients of the last of these; if RESETS, keep, (batch, length). Sequences reset their states before a
// step whose keep is 0. HIDDEN units are HEADS times WIDTH; a unit sees the states of its head.
const WIDTH: u32 = HIDDEN / HEADS;
fn forgets(row: u32, t: u32) -> bool {
    if (!RESETS) { return false; }
    let states = 1u + OTHERS + select(0u, OTHERS, ARRIVED);
    return t < dims.length && given[states * dims.batch * HIDDEN + row * dims.length + min(t, dims.length - 1u)] == 0.0;
}
