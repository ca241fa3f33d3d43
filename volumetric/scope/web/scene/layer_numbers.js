// How a scene is pulled apart: the number of each node's layer, and the direction in which layers move.

/** Return the ways to pull a scene apart: [{name, label, direction: [x, y, z], numbers: Float32Array around 0, step}]. */
export function layerWays(nodes, tables, lists) {
  const { places, count } = nodes,
    ways = [];
  const centred = (read, scale) => {
    const numbers = Float32Array.from({ length: count }, (_, i) => read(i));
    let low = Infinity,
      high = -Infinity;
    for (const one of numbers) {
      low = Math.min(low, one);
      high = Math.max(high, one);
    }
    for (let i = 0; i < count; i++) numbers[i] = (numbers[i] - (low + high) / 2) * scale;
    return high > low ? numbers : null;
  };
  const add = (name, label, direction, numbers) => {
    if (numbers) ways.push({ name, label, direction, numbers });
  };
  add(
    "z",
    "depth (z)",
    [0, 0, 1],
    centred(i => places[4 * i + 2], 1),
  );
  add(
    "y",
    "row (y)",
    [0, 1, 0],
    centred(i => places[4 * i + 1], 1),
  );
  add(
    "x",
    "column (x)",
    [1, 0, 0],
    centred(i => places[4 * i], 1),
  );
  add(
    "group",
    "group",
    [0, 0, 1],
    centred(i => tables.group.data[i], 2 * nodes.spacing),
  );
  const steps = stepsFromInputs(tables, lists, count);
  add(
    "steps",
    "steps from the inputs",
    [0, 0, 1],
    centred(i => steps[i], 2 * nodes.spacing),
  );
  return ways;
}

/** Return the smallest number of edges from an input (or a node that nothing leads to) to each node. */
function stepsFromInputs(tables, lists, count) {
  const steps = new Int32Array(count).fill(-1),
    target = tables.edges.target.data;
  let layer = [];
  for (let i = 0; i < count; i++)
    if (tables.role.data[i] === 0 || lists.inDegree[i] === 0) {
      steps[i] = 0;
      layer.push(i);
    }
  for (let step = 1; layer.length; step++) {
    const next = [];
    for (const node of layer)
      for (const edge of lists.outgoing(node)) {
        if (steps[target[edge]] < 0) {
          steps[target[edge]] = step;
          next.push(target[edge]);
        }
      }
    layer = next;
  }
  return steps.map(step => Math.max(0, step));
}
