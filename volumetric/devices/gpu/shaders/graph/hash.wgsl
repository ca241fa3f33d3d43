// PCG4D of Jarzynski & Olano 2020: random words from four numbers that identify where they are used.
fn mixed(words: vec4<u32>) -> vec4<u32> {
    var v = words;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

fn all_hashed(words: vec4<u32>) -> vec4<u32> {
    let v = mixed(words * 1664525u + 1013904223u);
    return mixed(v ^ (v >> vec4<u32>(16u)));
}

fn hashed(words: vec4<u32>) -> u32 { return all_hashed(words).x; }

// (n + 0.5) / 2^23 with the upper 23 bits of a word as n: exact, and never 0 or 1.
fn chance_of(word: u32) -> f32 { return (f32(word >> 9u) + 0.5) * 1.1920929e-7; }
