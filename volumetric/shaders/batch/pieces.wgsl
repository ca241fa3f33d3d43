// A row for each piece of a call.
fn call_rows() -> u32 { return ctl.pieces; }
