// Gradients of keys and values, sender by sender: scale · Σ slope · q[receiver], and Σ weight · g[receiver], in the order of edges.
struct Dims {
    count: u32, batch: u32, heads: u32, key: u32, value: u32, queries: u32, biases: u32, most_in: u32, most_out: u32, scale: f32,
    edges: u32, last_sender: u32, last_receiver: u32,  // lists hold nothing beyond them
}

@group(0) @binding(0) var<storage, read> g: array<f32>;        // (receivers, batch, heads, value)
@group(0) @binding(1) var<storage, read> weights: array<f32>;  // (edges, batch, heads)
@group(0) @binding(2) var<storage, read> slope: array<f32>;
@group(0) @binding(3) var<storage, read> q: array<f32>;        // (receivers, queries, heads, key)
@group(0) @binding(4) var<storage, read> readers: array<u32>;
@group(0) @binding(5) var<storage, read> out_starts: array<u32>;
@group(0) @binding(6) var<storage, read> out_edges: array<u32>;
@group(0) @binding(7) var<storage, read_write> g_kv: array<f32>; // (senders, batch, heads · (key + value))
@group(0) @binding(13) var<uniform> dims: Dims;

@compute @workgroup_size(WG)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let at = flat_group(group, groups) * WG + lid;
    if (at >= dims.count) { return; }
    let wide = dims.heads * (dims.key + dims.value);
    let column = at % wide;
    let b = at / wide % dims.batch;
    let sender = at / (wide * dims.batch);
    let keys = column < dims.heads * dims.key;
    let inner = select(column - dims.heads * dims.key, column, keys);
    let width = select(dims.value, dims.key, keys);
    let head = inner / width;
    let streams = select(dims.batch, dims.queries, keys);
    var sum = 0.0;
    //@rounds dims.most_out
    for (var n = out_starts[sender]; n < min(out_starts[sender + 1u], dims.edges); n++) {
        let edge = min(out_edges[n], dims.edges - 1u);
        let row = ((min(readers[edge], dims.last_receiver) * streams + b % streams) * dims.heads + head) * width + inner % width;
        let lane = (edge * dims.batch + b) * dims.heads + head;
        if (keys) { sum += slope[lane] * q[row]; } else { sum += weights[lane] * g[row]; }
    }
    g_kv[at] = select(sum, sum * dims.scale, keys);
}
