// The level of a layer, a cell, a region, or a part of a layer such as a head: facts, numbers, weights, edges.
import { histogram } from "../charts/histogram.js";
import { h, short } from "../elements.js";
import { showNumbers } from "./numbers_panel.js";

const EDGES = 40;

const pairs = list => h("dl", { class: "inspect-facts" }, list.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
const section = (title, ...content) => h("section", {}, h("h3", {}, title), ...content);

function cellFacts(nodes, within) {
  const axes = nodes.coords.shape[1], at = [...nodes.coords.data.subarray(within * axes, (within + 1) * axes)];
  const list = [["node", String(nodes.ids.data[within])], ["place", `(${at.map(short).join(", ")})`],
    ["edges", `${nodes.in.data[within]} in, ${nodes.out.data[within]} out`]];
  const own = nodes.populations.find(([, from, to]) => within >= from && within < to);
  if (own) list.push(["population", own[0]], ["cell", own[3]], ["its weights", own[4] === "none" ? "of its own" : `shared (${own[4]})`]);
  return list;
}

/** Return the facts of a node: those of its layer, or of a cell or region. */
function nodeFacts(layer, within) {
  if (within === null) return layerFacts(layer);
  return [["layer", `${layer.coord} ${layer.kind}`], ...(layer.nodes ? cellFacts(layer.nodes, within) : layer.regions[within].facts)];
}

function layerFacts(layer) {
  const list = [["coordinate", layer.coord], ["kind", layer.kind], ["reads", layer.in.join(" × ")], ["gives", layer.out.join(" × ")]];
  if (layer.clock) list.push(["clock", layer.clock]);
  if (layer.disabled) list.push(["state", "disabled: passes its input on"]);
  list.push(["weights", short(layer.weights)]);
  if (layer.states.length) list.push(["states", layer.states.map(({ name, shape }) => `${name} ${shape.join(" × ")}`).join(", ")]);
  if (layer.children.length) list.push(["contains", layer.children.map(([path, kind]) => `${path}: ${kind}`).join(", ")]);
  return [...list, ...layer.fields.filter(([name]) => !["graph", "program"].includes(name))];
}

/** Return the rows and columns of a parameter that belong to a cell alone, or null. */
function entryOf(layer, parameter, within) {
  const entry = layer.nodes?.entries?.[parameter.name], place = entry?.place.data[within] ?? -1;
  if (place < 0) return null;
  const [height, width] = parameter.matrix, from = place * entry.width, to = from + entry.width;
  if (parameter.shape.length < 2 || entry.axis === 1) return { rows: [0, height], columns: [from, Math.min(width, to)] };
  return { rows: [from, to], columns: [0, width] };
}

function parameterRow(inspector, layer, parameter, within, part) {
  const [height, width] = parameter.matrix;
  let range = { rows: [0, height], columns: [0, width] }, own = false;
  if (part && parameter.parts) {
    const i = parameter.parts.names.indexOf(part.name), from = i * parameter.parts.size, to = from + parameter.parts.size;
    range = parameter.parts.axis ? { ...range, columns: [from, to] } : { ...range, rows: [from, to] };
  } else if (within !== null) {
    const entry = entryOf(layer, parameter, within);
    own = entry !== null;
    range = entry ?? range;
  }
  const { statistics } = parameter;
  const open = () => inspector.open({ kind: "matrix", parameter: parameter.name, ...range, whole: true });
  const bits = parameter.bits === 32 ? "" : ` · ${short(parameter.bits)} bits`;
  return h("li", {}, h("button", { type: "button", class: "inspect-parameter", onclick: open, "data-parameter": parameter.name },
    h("span", {}, h("b", {}, parameter.name), h("small", {}, `${parameter.shape.join(" × ")} · ${parameter.dtype}${bits}${own ? " · its own part" : ""}${parameter.shared ? ` · shared with ${parameter.shared}` : ""}`)),
    statistics?.histogram ? histogram(statistics.histogram, `weights between ${short(statistics.min)} and ${short(statistics.max)}`) : null));
}

function edgeLists(inspector, node) {
  const { source, target, delay } = inspector.data.scene.edges, incoming = [], outgoing = [];
  for (let i = 0; i < source.data.length; i++) {
    if (target.data[i] === node) incoming.push([source.data[i], delay.data[i]]);
    if (source.data[i] === node) outgoing.push([target.data[i], delay.data[i]]);
  }
  const unit = inspector.source.ticks ? "tick" : "row";
  const list = (title, edges) => edges.length ? section(`${title} (${short(edges.length)})`, h("ul", { class: "inspect-list" },
    edges.slice(0, EDGES).map(([other, late]) => h("li", {}, h("button", { type: "button", onclick: () => inspector.choose(other) },
      h("span", {}, inspector.nodeName(other)), late ? h("small", {}, `after ${late} ${unit}${late > 1 ? "s" : ""}`) : null))),
    edges.length > EDGES ? h("li", { class: "dim" }, `and ${short(edges.length - EDGES)} more`) : null)) : null;
  return [list("Reads from", incoming), list("Read by", outgoing)];
}

/** Show a node, or a part of it. */
export async function showNode(inspector, level) {
  const { node, source } = inspector, place = source.place(node);
  if (!place) return { element: h("div", {}, h("h2", {}, inspector.nodeName(node)), edgeLists(inspector, node)) };
  const { layer, within } = place, part = level?.kind === "part" ? level : null;
  const names = layer.regions && within !== null ? new Set(layer.regions[within].parameters) : null;
  let parameters = names ? layer.parameters.filter(one => names.has(one.name)) : layer.parameters;
  if (part) parameters = parameters.filter(one => one.parts?.names.includes(part.name));
  if (within !== null && layer.nodes) parameters = [...parameters].sort((a, b) => (entryOf(layer, b, within) !== null) - (entryOf(layer, a, within) !== null));
  const parts = part ? [] : [...new Set(layer.parameters.flatMap(one => one.parts?.names ?? []))];
  const numbers = part ? null : await showNumbers(inspector);
  const element = h("div", { class: "inspect-node" },
    h("h2", {}, part ? part.name : within === null ? layer.kind : inspector.nodeName(node)),
    part || within !== null ? null : h("p", { class: "dim inspect-about" }, layer.about),
    part ? null : pairs(nodeFacts(layer, within)),
    numbers?.element,
    parts.length ? section("Parts", h("div", { class: "inspect-chips" }, parts.slice(0, 64).map(name =>
      h("button", { type: "button", onclick: () => inspector.open({ kind: "part", name }) }, name)))) : null,
    parameters.length ? section("Weights", h("ul", { class: "inspect-list" }, parameters.map(one => parameterRow(inspector, layer, one, within, part)),
      layer.leftOut ? h("li", { class: "dim" }, `and ${short(layer.leftOut)} more`) : null)) : null,
    part ? null : edgeLists(inspector, node),
    part || within === null ? null : h("details", {}, h("summary", {}, `The whole ${layer.kind}`), h("p", { class: "dim" }, layer.about), pairs(layerFacts(layer))),
    !part && layer.formula ? h("details", {}, h("summary", {}, "Equations"), h("pre", {}, layer.formula)) : null);
  return { element, timed: numbers?.timed, destroy: () => numbers?.destroy?.() };
}
