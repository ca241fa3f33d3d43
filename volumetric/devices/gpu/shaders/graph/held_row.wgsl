// How a team of TEAM neighbouring invocations goes through its row: in rounds of TEAM * HELD elements, of which each invocation
// reads HELD at once. If the row is no longer than a round (WHOLE), they stay in its registers and are read only once.
const ROUND: u32 = TEAM * HELD;

// Element `e` of a round, which begins at `at` for this invocation. Beyond the end of the row it is the last one.
fn held_at(at: u32, e: u32) -> u32 { return min(at + e * TEAM, dims.width - 1u); }
fn is_held(at: u32, e: u32) -> bool { return at + e * TEAM < dims.width; }
