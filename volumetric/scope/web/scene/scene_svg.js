// The scene as seen, as shapes and lines of an SVG, for papers.
import { SHAPES } from "./node_mesh.js";
import { LOOK } from "./node_tables.js";

/** Maximum number of nodes of an SVG. */
export const MOST_NODES = 5000;
const MOST_EDGES = 20000, SPACE = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, text = null) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
  if (text !== null) element.textContent = text;
  return element;
}

function polygon(points, attributes) {
  return svg("polygon", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), ...attributes });
}

/**
 * Return an SVG element of the nodes, edges and labels that the screen shows.
 *
 * Raises an error with a sentence for people if it shows more than 5,000 nodes.
 */
export function sceneSvg({ nodes, places, edges, rgba, strength, labels, legend, theme, width, height, chosen, boxes, point, names, roles }) {
  const seen = [];
  for (let i = 0; i < nodes.count; i++) if (places[4 * i + 2] === places[4 * i + 2]) seen.push(i);
  if (seen.length > MOST_NODES) throw new Error(`the scene shows ${seen.length.toLocaleString("en")} nodes; an SVG holds up to ${MOST_NODES.toLocaleString("en")}: hide some by slices, or save a PNG`);
  const root = svg("svg", { xmlns: SPACE, viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "system-ui, sans-serif", "font-size": 11.5 });
  root.append(svg("title", {}, "scene"), svg("rect", { width, height, fill: `rgb(${theme.back})` }));
  const seenAt = node => places[4 * node + 2] === places[4 * node + 2], group = svg("g", { class: "edges" });
  const { source, target, delay } = edges, step = Math.max(1, Math.ceil(source.data.length / MOST_EDGES));
  for (let i = 0; i < source.data.length; i += step) {
    const a = 4 * source.data[i], b = 4 * target.data[i];
    if (!seenAt(source.data[i]) || !seenAt(target.data[i]) || a === b || !rgba[4 * i + 3]) continue;
    const way = [places[b] - places[a], places[b + 1] - places[a + 1]], far = Math.hypot(...way) || 1, side = [-way[1] / far * 1.6, way[0] / far * 1.6];
    const from = [places[a] + way[0] / far * places[a + 3], places[a + 1] + way[1] / far * places[a + 3]], to = [places[b] - way[0] / far * places[b + 3], places[b + 1] - way[1] / far * places[b + 3]];
    const mine = chosen === source.data[i] ? theme.outgoing : chosen === target.data[i] ? theme.incoming : null;
    const paint = { fill: `rgb(${mine ?? rgba.subarray(4 * i, 4 * i + 3)})`, "fill-opacity": mine ? 1 : rgba[4 * i + 3] / 255 * strength * (chosen === null ? 1 : .3) };
    const parts = delay.data[i] > 1 ? Math.min(12, delay.data[i]) : 1;
    for (let k = 0; k < parts; k++) {
      const [t, u] = [k / parts, parts > 1 ? (k + .7) / parts : 1], at = (share, sign) => {
        const wide = sign * (1 - .72 * share);
        return [from[0] + (to[0] - from[0]) * share + side[0] * wide, from[1] + (to[1] - from[1]) * share + side[1] * wide];
      };
      group.append(polygon([at(t, 1), at(u, 1), at(u, -1), at(t, -1)], paint));
    }
  }
  root.append(group);
  const frames = svg("g", { class: "boxes", fill: "none" });
  for (const { node, low, high } of boxes) {
    const corner = k => point(low.clone().set(k & 1 ? high.x : low.x, k & 2 ? high.y : low.y, k & 4 ? high.z : low.z)), stroke = `rgb(${nodes.looks.subarray(4 * node, 4 * node + 3)})`;
    for (const [from, to] of [[0, 1], [2, 3], [4, 5], [6, 7], [0, 2], [1, 3], [4, 6], [5, 7], [0, 4], [1, 5], [2, 6], [3, 7]]) {
      const a = corner(from), b = corner(to);
      if (a && b) frames.append(svg("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, stroke, "stroke-width": 1 }));
    }
  }
  root.append(frames);
  const shapes = svg("g", { class: "nodes" });
  seen.sort((a, b) => places[4 * b + 2] - places[4 * a + 2]);
  for (const i of seen) {
    const p = 4 * i, [x, y, , r] = places.subarray(p, p + 4), bits = nodes.looks[p + 3];
    const ghost = bits & LOOK.ghost, paint = {
      fill: ghost ? "none" : `rgb(${nodes.looks.subarray(p, p + 3)})`, stroke: ghost ? `rgb(${theme.dim})` : `rgb(${theme.back})`, "stroke-width": Math.min(1, r * .15),
      ...(bits & LOOK.dim ? { "fill-opacity": .32 } : {}), ...(ghost ? { "stroke-dasharray": "2 2" } : {}),
    };
    const kind = SHAPES[roles[i]] ?? "ball";
    const shape = kind === "ball" ? svg("circle", { cx: x, cy: y, r, ...paint })
      : kind === "cube" ? svg("rect", { x: x - .85 * r, y: y - .85 * r, width: 1.7 * r, height: 1.7 * r, rx: .15 * r, ...paint })
        : polygon([[x, y - 1.15 * r], [x + 1.15 * r, y], [x, y + 1.15 * r], [x - 1.15 * r, y]], paint);
    shape.append(svg("title", {}, names[i]));
    shapes.append(shape);
    if (bits & LOOK.chosen) shapes.append(svg("circle", { cx: x, cy: y, r: 1.35 * r + 2, fill: "none", stroke: `rgb(${theme.accent})`, "stroke-width": 2 }));
  }
  root.append(shapes);
  const texts = svg("g", { class: "labels", "text-anchor": "middle", stroke: `rgb(${theme.back})`, "stroke-width": 3, "paint-order": "stroke", "stroke-linejoin": "round" });
  for (const { x, y, text, strong, faint } of labels) {
    texts.append(svg("text", { x, y: y + 11, "font-weight": strong ? 600 : 400, fill: `rgb(${faint ? theme.dim : theme.front})` }, text));
  }
  root.append(texts);
  root.append(legendSvg(legend, theme, height));
  return root;
}

function legendSvg(legend, theme, height) {
  const group = svg("g", { class: "legend", fill: `rgb(${theme.front})` });
  const rows = legend.entries.length + (legend.stops ? 3 : 1);
  let y = height - 14 - 17 * rows;
  group.append(svg("text", { x: 14, y, "font-weight": 600 }, `${legend.title}${legend.unit ? ` (${legend.unit})` : ""}`));
  if (legend.stops) {
    y += 8;
    legend.stops.forEach((colour, i) => group.append(svg("rect", { x: 14 + i * 6, y, width: 6.5, height: 10, fill: colour })));
    for (const [share, text] of legend.marks) {
      group.append(svg("text", { x: 14 + share * 6 * legend.stops.length, y: y + 23, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, text));
    }
    y += 28;
  }
  for (const [colour, text] of legend.entries) {
    y += 17;
    group.append(svg("rect", { x: 14, y: y - 9, width: 10, height: 10, rx: 2, fill: colour.startsWith("rgb") || colour.startsWith("#") ? colour : "none", stroke: `rgb(${theme.dim})` }), svg("text", { x: 30, y }, text));
  }
  return group;
}
