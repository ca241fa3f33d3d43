// A genome as a drawing: its nodes by depth, its connections by weight.
import { h } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const W = 320, H = 200;
const MOST_NAMES = 24;

/** Return a drawing of {nodes: [{x, y, name}], edges: [[from, to, weight]]}, coordinates 0 … 1; null without nodes. */
export function genomePicture(genome) {
  const nodes = Array.isArray(genome?.nodes) ? genome.nodes : [], edges = Array.isArray(genome?.edges) ? genome.edges : [];
  if (!nodes.length) return null;
  const svg = svgElement("svg", { viewBox: `0 0 ${W} ${H}`, class: "genome", role: "img", "aria-label": `${nodes.length} nodes and ${edges.length} connections` });
  const at = i => [16 + Number(nodes[i]?.x ?? 0) * (W - 32), 16 + Number(nodes[i]?.y ?? 0) * (H - 32)];
  for (const [from, to, weight] of edges) {
    const [x1, y1] = at(from), [x2, y2] = at(to);
    svg.append(svgElement("line", { x1, y1, x2, y2, class: weight < 0 ? "negative" : "positive", "stroke-width": Math.min(4, .5 + Math.abs(weight)) }));
  }
  nodes.forEach((node, i) => {
    const [cx, cy] = at(i), circle = svgElement("circle", { cx, cy, r: 6 }), title = svgElement("title", {});
    title.textContent = String(node.name ?? i);
    circle.append(title);
    svg.append(circle);
    if (nodes.length > MOST_NAMES || (node.x > 0 && node.x < 1)) return;
    const text = svgElement("text", { x: cx + (node.x < .5 ? 10 : -10), y: cy - 8, class: node.x < .5 ? "first" : "last" });
    text.textContent = String(node.name ?? "");
    svg.append(text);
  });
  return h("figure", { class: "genome-figure" }, svg);
}

function svgElement(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, String(value));
  return element;
}
