// The rows of a call that decodes one sequence.
fn call_rows() -> u32 { return 1u; }
