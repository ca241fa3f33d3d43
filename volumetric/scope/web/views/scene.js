// A network in space: the scene, time below it, and panels about what is chosen beside it.
import { h } from "../elements.js";
import { mountInspector } from "../inspect/inspector.js";
import { expandNames } from "../scene/expand_names.js";
import { neighbourWalk } from "../scene/neighbour_walk.js";
import { makeRenderer } from "../scene/renderer.js";
import { readTables } from "../scene/read_tables.js";
import { mountSceneMenu } from "../scene/scene_menu.js";
import { mountSculptor } from "../sculpt/sculptor.js";
import { mountTime } from "../time/time_panel.js";

const TURN = 0.12;
const ARROWS = { ArrowLeft: [-TURN, 0], ArrowRight: [TURN, 0], ArrowUp: [0, TURN], ArrowDown: [0, -TURN] };

/** Show the view in an element; returns {renderer, destroy(), key(event), exports()}. */
export async function mount(element, view, app, tools) {
  const data = await readTables(view.data, app),
    tables = data.scene;
  tables.names = expandNames(tables.names);
  const stage = h("div", { class: "scene-stage" }),
    side = h("div", { class: "scene-side" }),
    below = h("div", { class: "scene-below" });
  element.append(h("div", { class: "scene" }, stage, side, below));
  const renderer = makeRenderer(stage, tables, app),
    walk = neighbourWalk({ renderer, tables, app });
  const menu = mountSceneMenu(stage, { renderer, tables, app });
  if (tables.leftOut) stage.append(h("p", { class: "scene-note" }, `${tables.leftOut.toLocaleString("en")} more edges are not shown`));
  renderer.onSelect(node => app.selection.set(node));
  renderer.onHover((node, event) => {
    if (node === null) app.tooltip.hide();
    else app.tooltip.show(event.clientX, event.clientY, renderer.describe(node));
  });
  const choose = node => {
    if (node !== null && !(node >= 0 && node < renderer.count)) return;
    renderer.select(node);
    walk.forget();
    app.state.set("node", node);
    if (node === null) return;
    const { incoming, outgoing } = renderer.neighbours(node);
    app.announce(`${renderer.describe(node).split("\n").join(", ")}; ${incoming.length} incoming, ${outgoing.length} outgoing edges`);
  };
  const chosen = app.selection.subscribe(choose);
  const context = { data, view, app, renderer, tools };
  const parts = [mountTime(below, context), mountInspector(side, context), mountSculptor(side, context)];
  const saved = app.state.get("node");
  if (saved !== null && saved !== "" && app.selection.value === null) app.selection.set(Number(saved));
  else choose(app.selection.value);
  function key(event) {
    const onScene = event.target === renderer.canvas || event.target === document.body;
    if (onScene && ARROWS[event.key]) {
      renderer.cameras.orbit(...ARROWS[event.key]);
      return true;
    }
    if (walk.key(event) || parts.some(part => part?.key?.(event)) || menu.key(event)) return true;
    if (event.key === "Escape" && app.selection.value !== null) {
      app.selection.set(null);
      return true;
    }
    return false;
  }
  return {
    renderer,
    data,
    key,
    exports: () => ({
      canvas: renderer.canvas,
      picture: () => renderer.picture(),
      svg: () => renderer.svg(),
      figures: () => [renderer.figure()],
    }),
    destroy() {
      chosen();
      app.tooltip.hide();
      for (const part of parts) part?.destroy?.();
      menu.destroy();
      renderer.destroy();
    },
  };
}
