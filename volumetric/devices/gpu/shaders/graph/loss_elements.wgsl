// The terms of an element-wise loss: gradient of each, and for each workgroup the sum of terms and of weights.
struct Dims { count: u32, chunk: u32 }

@group(0) @binding(0) var<storage, read> prediction: array<f32>;
@group(0) @binding(1) var<storage, read> wanted: array<f32>;
@group(0) @binding(2) var<storage, read> weights: array<f32>;
@group(0) @binding(3) var<storage, read_write> gradient: array<f32>;
@group(0) @binding(4) var<storage, read_write> sums: array<vec2<f32>>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let id = flat_group(group, groups);
    var sum = 0.0;
    var count = 0.0;
    let stop = min(dims.count, (id + 1u) * dims.chunk);
    //@rounds dims.chunk / WG + 1
    for (var i = id * dims.chunk + lid; i < stop; i += WG) {
        let found = term(prediction[i], wanted[i]);
        var weight = 1.0;
        if (WEIGHTS) { weight = weights[i]; }
        gradient[i] = found.y * weight;
        sum += found.x * weight;
        count += weight;
    }
    sum = team_sum(sum, lid, WG);
    count = team_sum(count, lid, WG);
    if (lid == 0u && id * dims.chunk < dims.count) { sums[id] = vec2<f32>(sum, count); }
}
