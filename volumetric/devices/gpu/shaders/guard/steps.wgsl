// Predicate: sequences of a call with fewer rows than the current step need no more products.
fn is_idle(first: u32, end: u32) -> bool {
    for (var i = 0u; i < GUARDED; i++) {
        let place = ctl.places[min(first + i, end - 1u)];
        if (place.w + args.step < place.z) { return false; }
    }
    return true;
}
