// A cache of float32 vectors.
alias Cached = vec4<f32>;
fn from_cache(v: Cached) -> vec4<f32> { return v; }
fn to_cache(v: vec4<f32>) -> Cached { return v; }
fn cached_halves(v: Cached) -> Halves4 { return halves(v); }
