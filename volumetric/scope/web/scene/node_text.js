// What a node is in words.
import { short } from "../elements.js";

/** Return "z.y.x.slot" of a node of a grid, or null. */
export function nodeCoordinate(tables, node) {
  const coords = tables.coord?.data;
  return coords && coords[4 * node] >= 0 ? coords.subarray(4 * node, 4 * node + 4).join(".") : null;
}

/** Return the lines of a node's tooltip. */
export function describeNode(tables, palette, node) {
  const coordinate = nodeCoordinate(tables, node),
    name = tables.names[node],
    lines = [name.length > 200 ? `${name.slice(0, 199)}…` : name];
  if (coordinate && !name.startsWith(`${coordinate} `)) lines.push(`coordinate ${coordinate}`);
  const place = Array.from(tables.at.data.subarray(3 * node, 3 * node + 3), x => short(Number(x.toPrecision(6))));
  lines.push(`at x ${place[0]}, y ${place[1]}, z ${place[2]}`);
  const role = tables.roles[tables.role.data[node]],
    group = tables.groups[tables.group.data[node]];
  lines.push(group === role ? role : `${role}, ${group}`);
  const ports = Object.entries(tables.ports)
    .filter(([, port]) => port.node === node)
    .map(([port]) => port);
  if (ports.length) lines.push(`port ${ports.join(", ")}`);
  const size = tables.size.data[node];
  lines.push(`${size.toLocaleString("en")} ${size === 1 ? "value" : "values"}`);
  for (const [key, channel] of palette.channels) {
    if (["group", "role", "size", "incoming", "outgoing", "degree", "fired"].includes(key)) continue;
    lines.push(`${channel.label}: ${palette.text(node, key)}`);
  }
  if (!palette.isFired(node)) lines.push("did not compute");
  if (palette.isMasked(node)) lines.push("masked out");
  return lines.join("\n");
}
