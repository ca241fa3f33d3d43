// Location of a row's changes, from the last three words of its plan.
const STRIDE: u32 = (WIDTH + 3u) / 4u * 4u;
const RECENT: u32 = 0x80000000u;

struct Changes { first: u32, count: u32, repetition: u32 }

fn changes_of(row: u32) -> Changes {
    let words = plans[16u + row * (3u + NUMBERS / 2u) + 2u];
    return Changes(words.y, words.z, words.w);
}
