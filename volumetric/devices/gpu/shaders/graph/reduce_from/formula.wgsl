// A reduction of the values of a formula, whose steps another prelude has as code, see `formula_written`. Its axes are kept or
// reduced: a place has an index along each, in `kept` or in `reduced`.
struct Dims {
    outs: u32, count: u32, chunk: u32, splits: u32,
    scale: vec4<f32>,
    size: vec4<u32>,
    stride: array<vec4<u32>, 8>,
    begin: array<vec4<u32>, 8>,
    steps: array<vec4<u32>, 16>,
}

@group(0) @binding(13) var<uniform> dims: Dims;

alias Place = vec4<u32>;

fn place_along(axes: u32, number: u32) -> Place {
    var rest = number;
    var place: Place;
    //@unroll
    for (var axis = 1u; axis < RANK + 1u; axis++) {
        if (((axes >> (4u - axis)) & 1u) == 1u) {
            let above = rest / dims.size[4u - axis];
            place[4u - axis] = rest - above * dims.size[4u - axis];
            rest = above;
        }
    }
    return place;
}

fn kept_at(o: u32) -> Place { return place_along(KEPT, o); }
fn reduced_at(r: u32) -> Place { return place_along(REDUCED, r); }
fn element(kept: Place, reduced: Place) -> f32 { return computed(kept + reduced); }
