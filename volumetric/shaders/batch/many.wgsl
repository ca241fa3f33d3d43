// The rows of a call of any size.
fn call_rows() -> u32 { return ctl.rows; }
