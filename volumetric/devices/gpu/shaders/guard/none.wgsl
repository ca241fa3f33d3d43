// Every row of a product is wanted.
fn is_idle(first: u32, end: u32) -> bool { return false; }
