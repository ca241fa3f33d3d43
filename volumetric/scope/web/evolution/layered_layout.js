// Places for nodes of a directed graph: columns by depth, few crossings within them.

/**
 * Return a map of node id → {x, y}, both 0 … 1, and {columns, tallest}.
 *
 * nodes: [id, role, …]; edges: [source, target, weight, on]. Inputs are the first column, outputs the last; a node between
 * stands one column after the deepest node that feeds it. Edges that close a cycle do not count.
 */
export function layeredLayout(nodes, edges) {
  const ids = nodes.map(node => node[0]),
    role = new Map(nodes.map(node => [node[0], node[1]]));
  const into = new Map(ids.map(id => [id, []])),
    out = new Map(ids.map(id => [id, []]));
  for (const [source, target, , on] of edges)
    if (on && source !== target) {
      into.get(target).push(source);
      out.get(source).push(target);
    }
  const depth = new Map(),
    open = new Set();
  const visit = root => {
    // depth-first without recursion, for deep networks
    const stack = [[root, 0]];
    while (stack.length) {
      const top = stack.at(-1),
        [id] = top,
        sources = into.get(id);
      open.add(id);
      if (top[1] < sources.length) {
        const next = sources[top[1]++];
        if (!depth.has(next) && !open.has(next)) stack.push([next, 0]);
        continue;
      }
      const before = sources.map(source => depth.get(source)).filter(value => value !== undefined);
      depth.set(id, role.get(id) === "input" ? 0 : 1 + Math.max(0, ...before));
      open.delete(id);
      stack.pop();
    }
  };
  for (const id of ids) if (!depth.has(id)) visit(id);
  const last = Math.max(1, ...ids.map(id => depth.get(id)));
  for (const id of ids) {
    if (role.get(id) === "output") depth.set(id, last);
    else if (role.get(id) === "hidden") depth.set(id, Math.min(depth.get(id), Math.max(1, last - (out.get(id).length ? 0 : 1))));
  }
  const columns = Array.from({ length: last + 1 }, () => []);
  for (const id of ids) columns[depth.get(id)].push(id);
  const place = new Map();
  const spread = column => column.forEach((id, i) => place.set(id, (i + 0.5) / column.length));
  columns.forEach(spread);
  for (let sweep = 0; sweep < 6; sweep++) {
    const forward = sweep % 2 === 0;
    for (const column of forward ? columns : [...columns].reverse()) {
      if (column.length < 2 || role.get(column[0]) === "input") continue;
      const centre = new Map(
        column.map(id => {
          const near = (forward ? into : out).get(id);
          return [id, near.length ? near.reduce((sum, other) => sum + place.get(other), 0) / near.length : place.get(id)];
        }),
      );
      column.sort((a, b) => centre.get(a) - centre.get(b) || a - b);
      spread(column);
    }
  }
  return {
    at: new Map(ids.map(id => [id, { x: depth.get(id) / last, y: place.get(id) }])),
    columns: last + 1,
    tallest: Math.max(...columns.map(column => column.length)),
  };
}
