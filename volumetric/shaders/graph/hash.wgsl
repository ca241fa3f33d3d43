// PCG4D of Jarzynski & Olano 2020: random words out of four numbers that tell where they are used.
fn mixed(words: vec4<u32>) -> vec4<u32> {
    var v = words;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

fn hashed(words: vec4<u32>) -> u32 {
    let v = mixed(words * 1664525u + 1013904223u);
    return mixed(v ^ (v >> vec4<u32>(16u))).x;
}
