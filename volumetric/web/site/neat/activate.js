// One genome in JavaScript, for a page that shows its champion: `volumetric/evolution/activate.py`, `activate_reference`.

import { linked } from "./genome.js";

const logistic = x => 1 / (1 + Math.exp(-x));

/** The error function to 1.5e-7: Abramowitz and Stegun, 7.1.26. */
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return Math.sign(x) * (1 - tail);
}

/** By code, as in genome.js. */
const SQUASH = [
  x => logistic(4.9 * x), logistic, Math.tanh, x => Math.max(x, 0), x => x, x => (x > 0 ? x : 0.01 * x), x => x * logistic(x),
  x => 0.5 * x * (1 + erf(x * Math.SQRT1_2)), Math.sin, x => Math.exp(-x * x), Math.abs, x => x * x, x => Math.min(Math.max(x, -1), 1),
];
const sum = terms => terms.reduce((a, b) => a + b, 0);
const AGGREGATE = [sum, terms => sum(terms) / terms.length, terms => terms.reduce((a, b) => a * b, 1), terms => Math.max(...terms), terms => Math.min(...terms)];

/** Return {act, reset}: `act` goes from inputs to outputs; `reset` lets the nodes of a recurrent genome begin at zero again. */
export function activator(genome, common) {
  const { inputs, outputs, recurrent, steps } = common, order = linked(genome, common), values = new Float64Array(inputs + genome.nodes.length);
  return {
    act(x) {
      values.set(x);
      for (let step = 0; step < (recurrent ? steps : 1); step++) {
        const before = recurrent ? values.slice() : values; // feed-forward nodes read what the nodes before them wrote
        for (const { node, sources, weights } of order) {
          const { activation, aggregation, bias } = genome.nodes[node], terms = sources.map((source, i) => weights[i] * before[source]);
          values[inputs + node] = SQUASH[activation]((terms.length ? AGGREGATE[aggregation](terms) : 0) + bias);
        }
      }
      return Array.from(values.subarray(inputs, inputs + outputs));
    },
    reset() { values.fill(0); },
  };
}

/** Return nodes with places in 0 … 1 and enabled connections of a genome, for `genomePicture`. */
export function genomePlaces({ nodes, connections }, inputs, outputs, names = []) {
  const on = connections.filter(gene => gene.enabled), depth = new Map(Array.from({ length: inputs }, (_, i) => [i, 0]));
  const depthOf = id => {
    if (!depth.has(id)) {
      depth.set(id, 0); // while it is being looked for: a cycle ends here
      depth.set(id, 1 + Math.max(0, ...on.filter(gene => gene.target === id).map(gene => depthOf(gene.source))));
    }
    return depth.get(id);
  };
  nodes.forEach(({ id }) => depthOf(id));
  const last = Math.max(...depth.values());
  for (let o = 0; o < outputs; o++) depth.set(inputs + o, last);
  const ids = [...depth.keys()].sort((a, b) => a - b), columns = new Map();
  for (const id of ids) columns.set(depth.get(id), [...columns.get(depth.get(id)) ?? [], id]);
  const placed = ids.map(id => {
    const column = columns.get(depth.get(id));
    const role = id < inputs ? names[id] ?? `in ${id}` : id < inputs + outputs ? `out ${id - inputs}` : `node ${id}`;
    return { x: depth.get(id) / last, y: (column.indexOf(id) + 1) / (column.length + 1), name: role };
  });
  return { nodes: placed, edges: on.map(({ source, target, weight }) => [ids.indexOf(source), ids.indexOf(target), weight]) };
}
