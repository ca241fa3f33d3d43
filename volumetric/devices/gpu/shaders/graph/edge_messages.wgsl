// Softmax of the scores of a receiver's edges, by stream and head, and the values that it weighs; an invocation for each number
// of a message. Edges at -inf do not count; without any a message is 0.
struct Dims {
    count: u32, batch: u32, heads: u32, key: u32, value: u32, queries: u32, biases: u32, most_in: u32, most_out: u32, scale: f32,
    edges: u32, last_sender: u32, last_receiver: u32,  // lists hold nothing beyond them
}

@group(0) @binding(0) var<storage, read> scores: array<f32>;   // (edges, batch, heads)
@group(0) @binding(1) var<storage, read> kv: array<f32>;       // (senders, batch, heads · (key + value))
@group(0) @binding(2) var<storage, read> starts: array<u32>;
@group(0) @binding(3) var<storage, read> senders: array<u32>;
@group(0) @binding(4) var<storage, read_write> weights: array<f32>;
@group(0) @binding(5) var<storage, read_write> message: array<f32>; // (receivers, batch, heads, value)
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let i = at % dims.value;
    let lane = at / dims.value % (dims.batch * dims.heads);
    let receiver = at / (dims.value * dims.batch * dims.heads);
    let width = dims.batch * dims.heads;
    let first = min(starts[receiver], dims.edges);
    let last = min(starts[receiver + 1u], dims.edges);
    var top = LOWEST;
    var odd = false;
    //@rounds dims.most_in
    for (var edge = first; edge < last; edge++) {
        let score = scores[edge * width + lane];
        if (is_odd(score)) { odd = true; } else { top = max(top, score); }
    }
    var total = 0.0;
    //@rounds dims.most_in
    for (var edge = first; edge < last; edge++) { total += exponential(scores[edge * width + lane] - top); }
    let factor = 1.0 / select(total, 1.0, total == 0.0);
    let b = lane / dims.heads;
    let column = dims.heads * dims.key + lane % dims.heads * dims.value + i;
    var sum = 0.0;
    //@rounds dims.most_in
    for (var edge = first; edge < last; edge++) {
        let weight = select(exponential(scores[edge * width + lane] - top) * factor, nan(), odd);
        if (i == 0u) { weights[edge * width + lane] = weight; }
        sum += weight * kv[(min(senders[edge], dims.last_sender) * dims.batch + b) * dims.heads * (dims.key + dims.value) + column];
    }
    message[at] = sum;
}
