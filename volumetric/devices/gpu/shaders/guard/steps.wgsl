// Predicate: sequences of a call with fewer rows than the current step need no more products.
fn is_idle(first: u32, end: u32) -> bool {
    for (var i = 0u; i < GUARDED; i++) {
        let start = ctl.places[min(first + i, end - 1u)].w;
        if (start + args.step < ctl.places[start].z) { return false; }
    }
    return true;
}
