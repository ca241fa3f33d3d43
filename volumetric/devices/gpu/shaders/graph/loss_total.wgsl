// Sum of all terms, and of their weights; one workgroup.
struct Dims { count: u32 }

@group(0) @binding(0) var<storage, read> sums: array<vec2<f32>>;
@group(0) @binding(1) var<storage, read_write> total: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
    var sum = vec2<f32>(0.0);
    for (var i = lid; i < dims.count; i += WG) { sum += sums[i]; }
    let terms = team_sum(sum.x, lid, WG);
    let weights = team_sum(sum.y, lid, WG);
    if (lid == 0u) {
        total[0] = terms;
        weight[0] = weights;
    }
}
