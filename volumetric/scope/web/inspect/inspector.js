// What is chosen in the scene.
import { h } from "../elements.js";

/** Mount the panel. `context` is that of views/scene.js. */
export function mountInspector(element, { data, app }) {
  const panel = h("section", { class: "panel", "aria-label": "Chosen node" });
  element.append(panel);
  const show = node => { panel.hidden = node === null; if (node !== null) panel.replaceChildren(h("h2", {}, data.scene.names[node])); };
  show(app.selection.value);
  return { destroy: app.selection.subscribe(show) };
}
