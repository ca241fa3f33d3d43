// Pieces of a call that have fewer rows than steps were made need no more of them.
fn is_idle(first: u32, end: u32) -> bool {
    for (var i = 0u; i < GUARDED; i++) {
        let start = ctl.places[min(first + i, end - 1u)].w;
        if (start + args.step < ctl.places[start].z) { return false; }
    }
    return true;
}
