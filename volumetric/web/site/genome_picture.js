// A genome as a drawing: its nodes by depth, its connections by weight.
import { h } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const W = 320, EDGE = 16;
const ROW = 34; // between nodes of a column
const LOWEST = 120, HIGHEST = 320;
const BEND = 16; // of a connection that skips a column
const MOST_NAMES = 24;

/** Return a drawing of {nodes: [{x, y, name}], edges: [[from, to, weight]]}, coordinates 0 … 1; null without nodes. */
export function genomePicture(genome) {
  const nodes = Array.isArray(genome?.nodes) ? genome.nodes : [], edges = Array.isArray(genome?.edges) ? genome.edges : [];
  if (!nodes.length) return null;
  const columns = nodes.reduce((all, { x }) => all.set(x, (all.get(x) ?? 0) + 1), new Map());
  const H = Math.min(HIGHEST, Math.max(LOWEST, 2 * EDGE + ROW * Math.max(...columns.values())));
  const counts = `${nodes.length} nodes, ${edges.length} connections`;
  const svg = svgElement("svg", { viewBox: `0 0 ${W} ${H}`, class: "genome", role: "img", "aria-label": `Genome of ${counts}` });
  const at = i => [EDGE + Number(nodes[i]?.x ?? 0) * (W - 2 * EDGE), EDGE + Number(nodes[i]?.y ?? 0) * (H - 2 * EDGE)];
  const order = [...columns.keys()].sort((a, b) => a - b), column = i => order.indexOf(nodes[i]?.x);
  edges.forEach(([from, to, weight], e) => {
    const [x1, y1] = at(from), [x2, y2] = at(to), bend = (e % 2 ? 1 : -1) * BEND * Math.max(0, Math.abs(column(to) - column(from)) - 1);
    svg.append(svgElement("path", { d: `M${x1} ${y1} Q${(x1 + x2) / 2} ${(y1 + y2) / 2 + bend} ${x2} ${y2}`, class: weight < 0 ? "negative" : "positive", "stroke-width": Math.min(4, .5 + Math.abs(weight)) }));
  });
  nodes.forEach((node, i) => {
    const [cx, cy] = at(i), circle = svgElement("circle", { cx, cy, r: 6 }), title = svgElement("title", {});
    title.textContent = String(node.name ?? i);
    circle.append(title);
    svg.append(circle);
    if (nodes.length > MOST_NAMES || (node.x > 0 && node.x < 1)) return;
    const text = svgElement("text", { x: cx + (node.x < .5 ? 10 : -10), y: cy - 7, class: node.x < .5 ? "first" : "last" });
    text.textContent = String(node.name ?? "");
    svg.append(text);
  });
  return h("figure", { class: "genome-figure" }, svg,
    h("figcaption", { class: "note" }, `${counts}: `, h("span", { class: "positive" }, "positive"), " and ", h("span", { class: "negative" }, "negative (dashed)"), " weights."));
}

function svgElement(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}
