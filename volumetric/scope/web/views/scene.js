// A network in space: the scene, time below it, and panels about what is chosen beside it.
import { h } from "../elements.js";
import { mountInspector } from "../inspect/inspector.js";
import { makeRenderer } from "../scene/renderer.js";
import { readTables } from "../scene/read_tables.js";
import { mountSculptor } from "../sculpt/sculptor.js";
import { mountTime } from "../time/time_panel.js";

/** Show the view in an element; returns {renderer, destroy(), key(event), exports()}. */
export async function mount(element, view, app, tools) {
  const data = await readTables(view.data, app);
  const stage = h("div", { class: "scene-stage" }), side = h("div", { class: "scene-side" }), below = h("div", { class: "scene-below" });
  element.append(h("div", { class: "scene" }, stage, side, below));
  const renderer = makeRenderer(stage, data.scene, app);
  renderer.onSelect(node => app.selection.set(node));
  renderer.onHover((node, event) => {
    if (node === null) app.tooltip.hide(); else app.tooltip.show(event.clientX, event.clientY, data.scene.names[node]);
  });
  const chosen = app.selection.subscribe(node => renderer.select(node));
  const context = { data, view, app, renderer, tools };
  const parts = [mountTime(below, context), mountInspector(side, context), mountSculptor(side, context)];
  return {
    renderer,
    key: event => parts.some(part => part?.key?.(event)),
    exports: () => ({ canvas: renderer.canvas }),
    destroy() { chosen(); for (const part of parts) part?.destroy?.(); renderer.destroy(); },
  };
}
