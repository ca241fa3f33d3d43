// Gradient of the scores: weight · (gradient of the weight - its mean over the receiver's edges); an invocation for each receiver,
// stream and head.
struct Dims {
    count: u32, batch: u32, heads: u32, key: u32, value: u32, queries: u32, biases: u32, most_in: u32, most_out: u32, scale: f32,
    edges: u32, last_sender: u32, last_receiver: u32,  // lists hold nothing beyond them
}

@group(0) @binding(0) var<storage, read> scores: array<f32>;   // gradients of weights, (edges, batch, heads)
@group(0) @binding(1) var<storage, read> weights: array<f32>;
@group(0) @binding(2) var<storage, read> starts: array<u32>;
@group(0) @binding(3) var<storage, read_write> slope: array<f32>;
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let width = dims.batch * dims.heads;
    let lane = at % width;
    let first = min(starts[at / width], dims.edges);
    let last = min(starts[at / width + 1u], dims.edges);
    var mean = 0.0;
    //@rounds dims.most_in
    for (var edge = first; edge < last; edge++) { mean += weights[edge * width + lane] * scores[edge * width + lane]; }
    //@rounds dims.most_in
    for (var edge = first; edge < last; edge++) {
        slope[edge * width + lane] = weights[edge * width + lane] * (scores[edge * width + lane] - mean);
    }
}
