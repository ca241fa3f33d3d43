// Genomes of nodes and connections, all at once: a workgroup takes one genome and WG samples, a lane one sample.
// Nodes fire one after the other, so lanes share every gene and read neighbouring values; nothing has to be waited for.

struct Dims {
    samples: u32,
    inputs: u32,   // of a genome
    outputs: u32,
    slots: u32,    // values of a sample: inputs, then nodes
    one_input: u32, // 1: all genomes read the same inputs
    genomes: u32,
    edges: u32,    // of the genome that has most
}

struct Fired {
    slot: u32,     // where the value goes
    kinds: u32,    // activation + 256 * aggregation
    first: u32,    // connections first .. last lead into the node
    last: u32,
    bias: f32,
}

struct Edge {
    source: u32,   // slot
    weight: f32,
}

@group(0) @binding(0) var<storage, read> heads: array<u32>;     // genome g fires nodes heads[g] .. heads[g + 1]
@group(0) @binding(1) var<storage, read> fired: array<Fired>;
@group(0) @binding(2) var<storage, read> edges: array<Edge>;
@group(0) @binding(3) var<storage, read> x: array<f32>;         // [genomes or 1, inputs, samples]
@group(0) @binding(4) var<storage, read_write> values: array<f32>;  // [genomes, slots, samples]
@group(0) @binding(5) var<storage, read_write> y: array<f32>;   // [genomes, outputs, samples]
@group(0) @binding(13) var<uniform> dims: Dims;

fn squash(kind: u32, x: f32) -> f32 {
    switch (kind) {
        case 0u: { return logistic(4.9 * x); }
        case 1u: { return logistic(x); }
        case 2u: { return hyperbolic_tangent(x); }
        case 3u: { return positive(x); }
        case 4u: { return x; }
        case 5u: { return select(0.01 * x, x, x > 0.0); }
        case 6u: { return x * logistic(x); }
        case 7u: { return x * normal_below(x); }
        case 8u: { return sin(x); }
        case 9u: { return exponential(-x * x); }
        case 10u: { return abs(x); }
        case 11u: { return x * x; }
        default: { return clamp(x, -1.0, 1.0); }
    }
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
    let genome = group.x + group.z * 65535u;
    let b = group.y * WG + lid;
    if (b >= dims.samples || genome >= dims.genomes) { return; }
    let home = genome * dims.slots * dims.samples + b;
    let read = select(genome, 0u, dims.one_input == 1u) * dims.inputs * dims.samples + b;
    for (var i = 0u; i < dims.inputs; i++) { values[home + i * dims.samples] = x[read + i * dims.samples]; }
    // A node that nothing leads to, and that no output depends on, is not fired; outputs always are.
    //@rounds dims.slots
    for (var k = heads[genome]; k < heads[genome + 1u]; k++) {
        let node = fired[k];
        let aggregation = node.kinds / 256u;
        var total = 0.0;
        //@rounds dims.edges / max(dims.slots, 1) + 1
        for (var j = node.first; j < node.last; j++) {
            let term = edges[j].weight * values[home + edges[j].source * dims.samples];
            if (aggregation <= 1u || j == node.first) { total += term; }
            else if (aggregation == 2u) { total *= term; }
            else if (aggregation == 3u) { total = max(total, term); }
            else { total = min(total, term); }
        }
        if (aggregation == 1u && node.last > node.first) { total /= f32(node.last - node.first); }
        values[home + node.slot * dims.samples] = squash(node.kinds % 256u, total + node.bias);
    }
    for (var o = 0u; o < dims.outputs; o++) {
        y[(genome * dims.outputs + o) * dims.samples + b] = values[home + (dims.inputs + o) * dims.samples];
    }
}
