// A cache of float16 vectors, two halves a word.
alias Cached = vec2<u32>;
fn from_cache(v: Cached) -> vec4<f32> { return vec4<f32>(unpack2x16float(v.x), unpack2x16float(v.y)); }
fn to_cache(v: vec4<f32>) -> Cached { return vec2<u32>(pack2x16float(v.xy), pack2x16float(v.zw)); }
fn cached_halves(v: Cached) -> Halves4 { return halves_of_bits(v); }
