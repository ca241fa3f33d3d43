// For each edge, stream and head: scale · a[receiver] · key[sender] + bias; OF_VALUES: a[receiver] · value[sender].
struct Dims {
    count: u32, batch: u32, heads: u32, key: u32, value: u32, queries: u32, biases: u32, most_in: u32, most_out: u32, scale: f32,
    edges: u32, last_sender: u32, last_receiver: u32,  // lists hold nothing beyond them
}

@group(0) @binding(0) var<storage, read> a: array<f32>;        // (receivers, queries, heads, key), or (receivers, batch, heads, value)
@group(0) @binding(1) var<storage, read> kv: array<f32>;       // (senders, batch, heads · (key + value))
@group(0) @binding(2) var<storage, read> bias: array<f32>;     // (edges, biases)
@group(0) @binding(3) var<storage, read> senders: array<u32>;
@group(0) @binding(4) var<storage, read> readers: array<u32>;
@group(0) @binding(5) var<storage, read_write> scores: array<f32>; // (edges, batch, heads)
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let head = at % dims.heads;
    let b = at / dims.heads % dims.batch;
    let edge = at / (dims.heads * dims.batch);
    let width = select(dims.key, dims.value, OF_VALUES);
    let streams = select(dims.queries, dims.batch, OF_VALUES);
    let own = ((min(readers[edge], dims.last_receiver) * streams + b % streams) * dims.heads + head) * width;
    let start = select(0u, dims.heads * dims.key, OF_VALUES) + head * width;
    let other = (min(senders[edge], dims.last_sender) * dims.batch + b) * dims.heads * (dims.key + dims.value) + start;
    var sum = 0.0;
    //@rounds max(dims.key, dims.value)
    for (var i = 0u; i < width; i++) { sum += a[own + i] * kv[other + i]; }
    if (OF_VALUES) {
        scores[at] = sum;
    } else {
        scores[at] = sum * dims.scale + bias[edge * dims.biases + head % dims.biases];
    }
}
