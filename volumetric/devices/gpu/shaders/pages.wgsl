// Location of rows in a cache of pages: PAGE rows of all heads each, found through a sequence's line of PAGES page
// numbers. Without a state the cache is one page, of all rows of the call by their number.
@group(0) @binding(8) var<storage, read> tables: array<u32>;  // (lines, PAGES)

fn page_of(line: u32, position: u32) -> u32 {
    if (!HAS_STATE) { return 0u; }
    // Beside the row's place in the control block they cost no access to memory of their own.
    if (NEAR && position < NEAR_PAGES * PAGE) { return ctl.near[position / PAGE / 4u][position / PAGE % 4u]; }
    return tables[line * PAGES + position / PAGE];
}

// Row of a head within the cache.
fn cell(page: u32, head: u32, position: u32) -> u32 {
    return (page * KV_HEADS + head) * PAGE + position % PAGE;
}
