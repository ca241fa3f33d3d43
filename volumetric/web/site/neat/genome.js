// Genomes of nodes and connections: `volumetric/evolution/genome.py`, `genes.py` and `kernels/genome_kernels.py`.
// A genome is {nodes: [{id, activation, aggregation, bias}], connections: [{innovation, source, target, weight, enabled}]}:
// nodes by id, outputs first; connections by innovation number. Ids below the number of inputs are the inputs.
// Activation and aggregation are codes. Genes are never changed once a genome is complete: genomes share them.

export const ACTIVATIONS = ["steep_sigmoid", "sigmoid", "tanh", "relu", "linear", "leaky_relu", "silu", "gelu", "sin", "gaussian", "abs", "square", "clamp"];
export const AGGREGATIONS = ["sum", "mean", "product", "max", "min"];

/** Whether there is a connection, enabled or not, from `source` to `target`. */
export const isConnected = (connections, source, target) => connections.some(gene => gene.source === source && gene.target === target);

/** Insert a connection, keeping the order by innovation number. */
export function insertConnection(connections, gene) {
  let place = connections.length;
  while (place > 0 && connections[place - 1].innovation > gene.innovation) place--;
  connections.splice(place, 0, gene);
}

/** Whether a connection would close a cycle: whether `source` is reached from `target`. */
export function closesCycle(connections, source, target) {
  const reached = new Set([target]);
  for (let before = 0; before < reached.size && !reached.has(source);) {
    before = reached.size;
    for (const gene of connections) if (reached.has(gene.source)) reached.add(gene.target);
  }
  return reached.has(source);
}

/**
 * Return what a genome computes: for each node that an output depends on, after its sources,
 * {node (its index), sources (slots), weights}. Slots are inputs, then nodes. Of a recurrent genome it is all nodes, which
 * change at once. `_link` and `_order` in Python.
 */
export function linked({ nodes, connections }, { inputs, outputs, recurrent }) {
  const index = new Map(nodes.map((node, i) => [node.id, i]));
  const into = nodes.map(() => []);
  for (const gene of connections) if (gene.enabled) into[index.get(gene.target)].push(gene);
  const slot = id => (id < inputs ? id : inputs + index.get(id));
  const order = [], seen = new Set();
  if (recurrent) order.push(...nodes.keys());
  for (let output = 0; output < outputs && !recurrent; output++) {
    if (seen.has(output)) continue;
    seen.add(output);
    const stack = [{ node: output, next: 0 }];
    while (stack.length) {
      const top = stack.at(-1);
      if (top.next === into[top.node].length) {
        order.push(stack.pop().node);
        continue;
      }
      const { source } = into[top.node][top.next++];
      const node = source < inputs ? -1 : index.get(source);
      if (node >= 0 && !seen.has(node)) {
        seen.add(node);
        stack.push({ node, next: 0 });
      }
    }
  }
  return order.map(node => ({ node, sources: into[node].map(gene => slot(gene.source)), weights: into[node].map(gene => gene.weight) }));
}

/** Return the JSON text that `Genome.load` reads. */
export function genomeJson({ nodes, connections }, { inputs, outputs, recurrent, steps }) {
  return JSON.stringify({
    format: "volumetric.genome", version: 1, inputs, outputs, recurrent, steps,
    nodes: nodes.map(({ id, bias, activation, aggregation }) => ({ id, bias, activation: ACTIVATIONS[activation], aggregation: AGGREGATIONS[aggregation] })),
    connections: connections.map(({ innovation, source, target, weight, enabled }) => ({ innovation, source, target, weight, enabled })),
  }, null, 1);
}
