// The scene as seen, as shapes and lines of an SVG, for papers.
import { Vector3 } from "../vendor/three.min.js";
import { colourTable } from "../charts/colours.js";
import { short } from "../elements.js";
import { SHAPES } from "./node_mesh.js";
import { LOOK } from "./node_tables.js";

/** Maximum number of nodes of an SVG. */
export const MOST_NODES = 5000;
const MOST_EDGES = 20000,
  SPACE = "http://www.w3.org/2000/svg";

function svg(name, attributes = {}, text = null) {
  const element = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, typeof value === "number" ? Number(value.toFixed(2)) : value);
  if (text !== null) element.textContent = text;
  return element;
}

function polygon(points, attributes) {
  return svg("polygon", { points: points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), ...attributes });
}

/** Return a canvas with what other canvases show, the last one on top. */
export function layered(first, ...others) {
  const whole = document.createElement("canvas"),
    brush = whole.getContext("2d");
  Object.assign(whole, { width: first.width, height: first.height });
  for (const one of [first, ...others]) brush.drawImage(one, 0, 0, whole.width, whole.height);
  return whole;
}

/** Return the places on the screen of an edge from surface to surface: 2 of a straight one, more of a bowed one. */
function ribbonPoints(nodes, places, source, target, bow, point) {
  const a = nodes.position(source, new Vector3()),
    b = nodes.position(target, new Vector3()),
    way = b.clone().sub(a),
    far = way.length();
  const up =
    Math.abs(way.y) > 0.9 * far
      ? new Vector3(1, 0, 0)
      : way
          .clone()
          .cross(new Vector3(0, 1, 0))
          .cross(way)
          .normalize();
  const steps = bow ? 16 : 1,
    points = [];
  for (let i = 0; i <= steps; i++) {
    const t = i / steps,
      at = point(
        a
          .clone()
          .addScaledVector(way, t)
          .addScaledVector(up, bow * far * 4 * t * (1 - t)),
      );
    if (at) points.push([at.x, at.y]);
  }
  const near = (at, node) => Math.hypot(at[0] - places[4 * node], at[1] - places[4 * node + 1]) < places[4 * node + 3];
  if (!bow && points.length === 2) {
    // cut at the surfaces
    const [p, q] = points,
      long = Math.hypot(q[0] - p[0], q[1] - p[1]),
      [r, s] = [places[4 * source + 3], places[4 * target + 3]];
    if (long <= r + s) return [];
    const on = share => [p[0] + (q[0] - p[0]) * share, p[1] + (q[1] - p[1]) * share];
    return [on(r / long), on(1 - s / long)];
  }
  return points.filter(at => !near(at, source) && !near(at, target));
}

/** Return the point beside a line of points, at a share of it; the line is wide where it starts. */
function beside(way, share, sign) {
  const at = Math.min(way.length - 1.0001, share * (way.length - 1)),
    k = Math.floor(at),
    [p, q] = [way[k], way[k + 1]];
  const long = Math.hypot(q[0] - p[0], q[1] - p[1]) || 1,
    wide = sign * 1.6 * (1 - 0.72 * share);
  return [p[0] + (q[0] - p[0]) * (at - k) - ((q[1] - p[1]) / long) * wide, p[1] + (q[1] - p[1]) * (at - k) + ((q[0] - p[0]) / long) * wide];
}

/**
 * Return an SVG element of the nodes, edges and labels that the screen shows.
 *
 * Raises an error with a sentence for people if it shows more than 5,000 nodes.
 */
export function sceneSvg({
  nodes,
  places,
  edges,
  bows,
  rgba,
  strength,
  labels,
  legend,
  theme,
  width,
  height,
  chosen,
  boxes,
  grid,
  point,
  names,
  roles,
}) {
  const seen = [];
  for (let i = 0; i < nodes.count; i++) if (places[4 * i + 2] === places[4 * i + 2]) seen.push(i);
  if (seen.length > MOST_NODES)
    throw new Error(`the scene shows ${short(seen.length)} nodes; an SVG holds up to ${short(MOST_NODES)}: hide some by slices, or save a PNG`);
  const root = svg("svg", {
    xmlns: SPACE,
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    "font-family": "system-ui, sans-serif",
    "font-size": 11.5,
  });
  root.append(svg("title", {}, "scene"), svg("rect", { width, height, fill: `rgb(${theme.back})` }));
  const lines = svg("g", {
    class: "grid",
    stroke: `rgb(${theme.grid.map((x, i) => Math.round(x * 0.82 + theme.dim[i] * 0.18))})`,
    "stroke-width": 0.8,
  });
  for (let i = 0; i + 5 < grid.length; i += 6) {
    const a = point(new Vector3().fromArray(grid, i)),
      b = point(new Vector3().fromArray(grid, i + 3));
    if (a && b) lines.append(svg("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y }));
  }
  root.append(lines);
  const seenAt = node => places[4 * node + 2] === places[4 * node + 2],
    group = svg("g", { class: "edges" });
  const { source, target, delay } = edges,
    step = Math.max(1, Math.ceil(source.data.length / MOST_EDGES));
  for (let i = 0; i < source.data.length; i += step) {
    const a = 4 * source.data[i],
      b = 4 * target.data[i];
    if (!seenAt(source.data[i]) || !seenAt(target.data[i]) || a === b || !rgba[4 * i + 3]) continue;
    const way = ribbonPoints(nodes, places, source.data[i], target.data[i], bows[i], point);
    if (way.length < 2) continue;
    const mine = chosen === source.data[i] ? theme.outgoing : chosen === target.data[i] ? theme.incoming : null;
    const paint = {
      fill: `rgb(${mine ?? rgba.subarray(4 * i, 4 * i + 3)})`,
      "fill-opacity": mine ? 1 : (rgba[4 * i + 3] / 255) * strength * (chosen === null ? 1 : 0.3),
    };
    const parts = delay.data[i] > 1 ? Math.min(12, delay.data[i]) : 1;
    for (let k = 0; k < parts; k++) {
      const from = k / parts,
        to = parts > 1 ? (k + 0.7) / parts : 1,
        steps = way.length > 2 ? Math.max(1, Math.ceil(12 / parts)) : 1;
      const shares = Array.from({ length: steps + 1 }, (_, n) => from + ((to - from) * n) / steps);
      group.append(polygon([...shares.map(share => beside(way, share, 1)), ...shares.reverse().map(share => beside(way, share, -1))], paint));
    }
  }
  root.append(group);
  const frames = svg("g", { class: "boxes", fill: "none" });
  for (const { node, low, high } of boxes) {
    const corner = k => point(low.clone().set(k & 1 ? high.x : low.x, k & 2 ? high.y : low.y, k & 4 ? high.z : low.z)),
      stroke = `rgb(${nodes.looks.subarray(4 * node, 4 * node + 3)})`;
    for (const [from, to] of [
      [0, 1],
      [2, 3],
      [4, 5],
      [6, 7],
      [0, 2],
      [1, 3],
      [4, 6],
      [5, 7],
      [0, 4],
      [1, 5],
      [2, 6],
      [3, 7],
    ]) {
      const a = corner(from),
        b = corner(to);
      if (a && b) frames.append(svg("line", { x1: a.x, y1: a.y, x2: b.x, y2: b.y, stroke, "stroke-width": 1 }));
    }
  }
  root.append(frames);
  const shapes = svg("g", { class: "nodes" });
  seen.sort((a, b) => places[4 * b + 2] - places[4 * a + 2]);
  for (const i of seen) {
    const p = 4 * i,
      [x, y, , r] = places.subarray(p, p + 4),
      bits = nodes.looks[p + 3];
    const ghost = bits & LOOK.ghost,
      paint = {
        fill: ghost ? "none" : `rgb(${nodes.looks.subarray(p, p + 3)})`,
        stroke: ghost ? `rgb(${theme.dim})` : `rgb(${theme.back})`,
        "stroke-width": Math.min(1, r * 0.15),
        ...(bits & LOOK.dim ? { "fill-opacity": 0.32 } : {}),
        ...(ghost ? { "stroke-dasharray": "2 2" } : {}),
      };
    const kind = SHAPES[roles[i]] ?? "ball";
    const shape =
      kind === "ball"
        ? svg("circle", { cx: x, cy: y, r, ...paint })
        : kind === "cube"
          ? svg("rect", { x: x - 0.85 * r, y: y - 0.85 * r, width: 1.7 * r, height: 1.7 * r, rx: 0.15 * r, ...paint })
          : polygon(
              [
                [x, y - 1.15 * r],
                [x + 1.15 * r, y],
                [x, y + 1.15 * r],
                [x - 1.15 * r, y],
              ],
              paint,
            );
    shape.append(svg("title", {}, names[i]));
    shapes.append(shape);
    if (bits & LOOK.chosen)
      shapes.append(svg("circle", { cx: x, cy: y, r: 1.35 * r + 2, fill: "none", stroke: `rgb(${theme.accent})`, "stroke-width": 2 }));
  }
  root.append(shapes);
  const texts = svg("g", {
    class: "labels",
    "text-anchor": "middle",
    stroke: `rgb(${theme.back})`,
    "stroke-width": 3,
    "paint-order": "stroke",
    "stroke-linejoin": "round",
  });
  for (const { x, y, text, strong, faint } of labels) {
    texts.append(svg("text", { x, y: y + 11, "font-weight": strong ? 600 : 400, fill: `rgb(${faint ? theme.dim : theme.front})` }, text));
  }
  root.append(texts);
  root.append(legendSvg(legend, theme, height));
  return root;
}

function legendSvg(legend, theme, height) {
  const table = legend.gradient ? colourTable(legend.map) : null;
  const stops = table
    ? Array.from({ length: 24 }, (_, i) => `rgb(${table.subarray(3 * Math.round((i * 255) / 23), 3 * Math.round((i * 255) / 23) + 3)})`)
    : [];
  const group = svg("g", { class: "legend", fill: `rgb(${theme.front})` });
  const rows = legend.entries.length + (legend.gradient ? 3 : 1);
  let y = height - 14 - 17 * rows;
  group.append(svg("text", { x: 14, y, "font-weight": 600 }, `${legend.title}${legend.unit ? ` (${legend.unit})` : ""}`));
  if (legend.gradient) {
    y += 8;
    stops.forEach((colour, i) => group.append(svg("rect", { x: 14 + i * 6, y, width: 6.5, height: 10, fill: colour })));
    for (const [share, text] of legend.marks) {
      group.append(
        svg("text", { x: 14 + share * 6 * stops.length, y: y + 23, "text-anchor": share === 0 ? "start" : share === 1 ? "end" : "middle" }, text),
      );
    }
    y += 28;
  }
  for (const [colour, text] of legend.entries) {
    y += 17;
    if (colour.startsWith("rgb") || colour.startsWith("#"))
      group.append(svg("rect", { x: 14, y: y - 9, width: 10, height: 10, rx: 2, fill: colour, stroke: `rgb(${theme.dim})` }));
    group.append(svg("text", { x: 30, y }, text));
  }
  return group;
}
