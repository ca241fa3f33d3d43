// Which edges bow, so that none lies on another or goes through a node; and the edges of each node.

const MOST = 600,
  PAIRS = 4e6;

/**
 * Return a bow for each edge, as a share of its length: edges with one in the other direction, and, in scenes of up to
 * `MOST` edges, those that a node lies on.
 */
export function edgeBows({ source, target }, nodes) {
  const count = source.data.length,
    bows = new Float32Array(count),
    pairs = new Set();
  for (let i = 0; i < count; i++) pairs.add(source.data[i] * nodes.count + target.data[i]);
  for (let i = 0; i < count; i++) if (pairs.has(target.data[i] * nodes.count + source.data[i])) bows[i] = count > MOST ? 0.08 : 0.14;
  if (count > MOST || count * nodes.count > PAIRS) return bows;
  const { places } = nodes,
    near = nodes.spacing * 0.35;
  for (let i = 0; i < count; i++) {
    const a = 4 * source.data[i],
      b = 4 * target.data[i],
      way = [0, 1, 2].map(k => places[b + k] - places[a + k]);
    const square = way[0] ** 2 + way[1] ** 2 + way[2] ** 2;
    if (square < (1.5 * nodes.spacing) ** 2) continue;
    for (let j = 0; j < nodes.count; j++) {
      const c = 4 * j;
      if (c === a || c === b) continue;
      const x = places[c] - places[a],
        y = places[c + 1] - places[a + 1],
        z = places[c + 2] - places[a + 2];
      const t = (x * way[0] + y * way[1] + z * way[2]) / square;
      if (t <= 0.02 || t >= 0.98) continue;
      if (Math.hypot(x - t * way[0], y - t * way[1], z - t * way[2]) < near) {
        bows[i] = 0.24;
        break;
      }
    }
  }
  return bows;
}

/** Return {incoming(node), outgoing(node)} → indices of edges, and {inDegree, outDegree}, Uint32Array. */
export function edgeLists({ source, target }, count) {
  const list = ends => {
    const degree = new Uint32Array(count),
      first = new Uint32Array(count + 1),
      order = new Uint32Array(ends.length);
    for (const end of ends) degree[end]++;
    for (let i = 0; i < count; i++) first[i + 1] = first[i] + degree[i];
    const next = first.slice();
    for (let i = 0; i < ends.length; i++) order[next[ends[i]]++] = i;
    return { degree, of: node => order.subarray(first[node], first[node + 1]) };
  };
  const out = list(source.data),
    into = list(target.data);
  return { outgoing: out.of, incoming: into.of, outDegree: out.degree, inDegree: into.degree };
}

/** Return the nodes that a node reads or that read it, itself left out, those that read it first. */
export function neighbours(lists, { source, target }, node) {
  const ends = [...Array.from(lists.outgoing(node), edge => target.data[edge]), ...Array.from(lists.incoming(node), edge => source.data[edge])];
  return [...new Set(ends)].filter(other => other !== node);
}
