// Sum of up to 6 arrays, one after the other; one workgroup.
struct Dims { counts: array<vec4<u32>, 2> }

@group(0) @binding(0) var<storage, read> part_0: array<f32>;
@group(0) @binding(1) var<storage, read> part_1: array<f32>;
@group(0) @binding(2) var<storage, read> part_2: array<f32>;
@group(0) @binding(3) var<storage, read> part_3: array<f32>;
@group(0) @binding(4) var<storage, read> part_4: array<f32>;
@group(0) @binding(5) var<storage, read> part_5: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(@builtin(local_invocation_index) lid: u32) {
    var sum = 0.0;
    for (var i = lid; i < dims.counts[0].x; i += WG) { sum += part_0[i]; }
    for (var i = lid; i < dims.counts[0].y; i += WG) { sum += part_1[i]; }
    for (var i = lid; i < dims.counts[0].z; i += WG) { sum += part_2[i]; }
    for (var i = lid; i < dims.counts[0].w; i += WG) { sum += part_3[i]; }
    for (var i = lid; i < dims.counts[1].x; i += WG) { sum += part_4[i]; }
    for (var i = lid; i < dims.counts[1].y; i += WG) { sum += part_5[i]; }
    sum = team_sum(sum, lid, WG);
    if (lid == 0u) { y[0] = sum; }
}
