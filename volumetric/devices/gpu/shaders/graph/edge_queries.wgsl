// Gradient of the queries: scale · Σ slope · key[sender] over a receiver's edges, and over streams that share a query.
struct Dims {
    count: u32, batch: u32, heads: u32, key: u32, value: u32, queries: u32, biases: u32, most_in: u32, most_out: u32, scale: f32,
    edges: u32, last_sender: u32, last_receiver: u32,  // lists hold nothing beyond them
}

@group(0) @binding(0) var<storage, read> kv: array<f32>;       // (senders, batch, heads · (key + value))
@group(0) @binding(1) var<storage, read> starts: array<u32>;
@group(0) @binding(2) var<storage, read> senders: array<u32>;
@group(0) @binding(3) var<storage, read> slope: array<f32>;    // (edges, batch, heads)
@group(0) @binding(4) var<storage, read_write> g_q: array<f32>; // (receivers, queries, heads, key)
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let i = at % dims.key;
    let head = at / dims.key % dims.heads;
    let own = at / (dims.key * dims.heads) % dims.queries;
    let receiver = at / (dims.key * dims.heads * dims.queries);
    let wide = dims.heads * (dims.key + dims.value);
    var sum = 0.0;
    for (var n = 0u; n < dims.batch / dims.queries; n++) {
        let b = own + n;
        //@rounds dims.most_in
        for (var edge = starts[receiver]; edge < min(starts[receiver + 1u], dims.edges); edge++) {
            let key = kv[(min(senders[edge], dims.last_sender) * dims.batch + b) * wide + head * dims.key + i];
            sum += slope[(edge * dims.batch + b) * dims.heads + head] * key;
        }
    }
    g_q[at] = sum * dims.scale;
}
