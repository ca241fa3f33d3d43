// What a recurrent kernel finds in `given`, one behind the other: h0 and, if SECOND, c0, each (batch, HIDDEN); if ARRIVED, the
// gradient of the last c; if RESETS, keep, (batch, length). Sequences forget their states before a step whose keep is 0.
fn forgets(row: u32, t: u32) -> bool {
    if (!RESETS) { return false; }
    let states = 1u + u32(SECOND) + u32(ARRIVED);
    return t < dims.length && given[states * dims.batch * HIDDEN + row * dims.length + min(t, dims.length - 1u)] == 0.0;
}
