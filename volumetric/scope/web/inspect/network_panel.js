// The level of the network: its layers in a list from which one is chosen.
import { h, short } from "../elements.js";

const MOST = 200;

/** Show what the network is. */
export function showNetwork({ source, choose, data }) {
  const count = source.layers.reduce((sum, layer) => sum + layer.weights, 0);
  const list = h("ul", { class: "inspect-list" });
  const find = h("input", { type: "search", placeholder: "Find a layer", "aria-label": "Find a layer", oninput: () => fill() });
  function fill() {
    const text = find.value.trim().toLowerCase();
    const hits = source.layers.filter(layer => `${layer.coord} ${layer.kind}`.toLowerCase().includes(text));
    list.replaceChildren(...hits.slice(0, MOST).map(layer => h("li", {}, h("button", { type: "button", onclick: () => choose(layer.first) },
      h("b", {}, layer.coord), h("span", {}, layer.kind), h("small", {}, layer.weights ? `${short(layer.weights)} weights` : "no weights")))),
    hits.length > MOST ? h("li", { class: "dim" }, `and ${short(hits.length - MOST)} more`) : "");
  }
  fill();
  return {
    element: h("div", {},
      h("p", { class: "dim" }, `${short(data.scene.names.length)} nodes in ${short(source.layers.length)} ${source.layers.length === 1 ? "layer" : "layers"}, ${short(count)} weights`),
      source.layers.length > 8 ? find : null, list,
      source.missing.map(text => h("p", { class: "dim inspect-sentence" }, source.live ? "" : `${text}.`))),
  };
}
