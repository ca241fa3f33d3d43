// A reduction of the elements of a tensor. Kept and reduced indices each run over up to 4 axes with strides in x.
struct Dims {
    outs: u32, count: u32, chunk: u32, splits: u32,
    scale: vec4<f32>,
    kept_size: vec4<u32>, kept_stride: vec4<u32>,
    reduced_size: vec4<u32>, reduced_stride: vec4<u32>,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

alias Place = u32;

fn kept_at(o: u32) -> u32 {
    var rest = o;
    var at = 0u;
    //@unroll
    for (var axis = 1u; axis < KEPT; axis++) {
        at += rest % dims.kept_size[KEPT - axis] * dims.kept_stride[KEPT - axis];
        rest = rest / dims.kept_size[KEPT - axis];
    }
    return at + rest * dims.kept_stride[0];
}

fn reduced_at(r: u32) -> u32 {
    var rest = r;
    var at = 0u;
    //@unroll
    for (var axis = 1u; axis < REDUCED; axis++) {
        at += rest % dims.reduced_size[REDUCED - axis] * dims.reduced_stride[REDUCED - axis];
        rest = rest / dims.reduced_size[REDUCED - axis];
    }
    return at + rest * dims.reduced_stride[0];
}

fn element(kept: Place, reduced: Place) -> f32 { return x[kept + reduced]; }
