// What is chosen in the scene, from the network down to one number: a panel beside the scene.
import { h } from "../elements.js";
import { levelName, readLink, writeLink } from "./levels.js";
import { showMatrix } from "./matrix_panel.js";
import { showNetwork } from "./network_panel.js";
import { showNode } from "./node_panel.js";
import { makeSource } from "./source.js";
import { showTrace } from "./trace_panel.js";
import { showWeight } from "./weight_panel.js";

/** Return a selector of the focused element within another, if it will be there again. */
function focusIn(body) {
  const focused = document.activeElement;
  if (!body.contains(focused)) return null;
  const [name, value] = Object.entries(focused.dataset)[0] ?? [];
  return name ? `[data-${name}="${CSS.escape(value)}"]` : null;
}

/** Mount the panel. `context` is that of views/scene.js. */
export function mountInspector(element, context) {
  const { data, app } = context, source = makeSource(context);
  if (!source.layers.length && !data.scene) return null;
  const crumbs = h("nav", { class: "inspect-crumbs", "aria-label": "Level" }), body = h("div", { class: "inspect-body" });
  const panel = h("section", { class: "panel inspect", "aria-label": "Inspector" }, crumbs, body);
  element.append(panel);
  const link = readLink(app.state.get("inspect"), context.view.name, data.scene.role.data.length);
  if (link && app.selection.value === null) app.selection.set(link.node);
  let levels = link?.node === app.selection.value ? link.levels : [], turn = 0, shown = null, drawn = "";

  const inspector = {
    context, source, app, data,
    get node() { return app.selection.value; },
    /** The row or tick at the frame that is shown, from 0; without a recording the last one, undefined if the program knows it. */
    get t() {
      const ticks = data.recordings?.[0]?.ticks?.data;
      if (!ticks?.length) return source.live ? undefined : source.rows.at(-1) ?? null;
      return Number(ticks[Math.max(0, Math.min(ticks.length - 1, app.time.value))]) - 1;
    },
    /** Show the frame of a row. */
    goTo(t) {
      const ticks = data.recordings?.[0]?.ticks?.data ?? [];
      const frame = ticks.findIndex(tick => Number(tick) - 1 === t);
      if (frame >= 0) app.time.set(frame);
    },
    choose(node) { levels = []; app.selection.set(node); draw(true); },
    open(...more) { levels = [...levels, ...more]; draw(true); },
    replace(level) { levels = [...levels.slice(0, -1), level]; draw(true); },
    nodeName: node => String(data.scene.names[node] ?? `node ${node}`),
  };

  function title(node) {
    const place = source.place(node);
    return place && place.within === null ? `${place.layer.coord} ${place.layer.kind}` : inspector.nodeName(node);
  }
  function drawCrumbs(focus) {
    const node = inspector.node, parts = [["network", () => inspector.choose(null)]];
    if (node !== null) parts.push([title(node), () => { levels = []; draw(true); }]);
    if (node !== null) levels.forEach((level, i) => parts.push([levelName(level), () => { levels = levels.slice(0, i + 1); draw(true); }]));
    crumbs.replaceChildren(h("ol", {}, parts.map(([name, go], i) => {
      const last = i === parts.length - 1;
      return h("li", {}, last ? h("span", { "aria-current": "location", tabindex: -1 }, name) : h("button", { type: "button", onclick: go }, name));
    })));
    if (focus) crumbs.querySelector("[aria-current]").focus({ preventScroll: true });
  }
  async function draw(moved = false) {
    const own = ++turn, node = inspector.node;
    app.tooltip.hide();
    if (node === null) levels = [];
    app.state.set("inspect", writeLink(context.view.name, node, levels));
    panel.hidden = node === null && !source.layers.length;
    const where = JSON.stringify([node, levels]);
    if (where !== drawn) drawCrumbs(moved && panel.contains(document.activeElement));
    drawn = where;
    const level = levels.at(-1);
    panel.dataset.level = node === null ? "network" : level?.kind ?? "node";
    const show = node === null ? showNetwork : { part: showNode, matrix: showMatrix, weight: showWeight, number: showTrace, step: showTrace }[level?.kind] ?? showNode;
    try {
      const next = await show(inspector, level, levels);
      if (own !== turn) { next.destroy?.(); return; }
      shown?.destroy?.();
      shown = next;
      const focus = moved ? null : focusIn(body);
      body.replaceChildren(next.element);
      if (focus) body.querySelector(focus)?.focus({ preventScroll: true });
    } catch (error) {
      if (own !== turn) return;
      shown?.destroy?.();
      shown = { timed: true };
      body.replaceChildren(h("p", { class: "dim inspect-sentence" }, error.message || "There is nothing to show here."));
    }
    panel.dataset.turn = own;
    if (moved) element.scrollTop = 0;
  }
  let waiting = 0;
  /** Draw what depends on time, some times a second at most. */
  function refresh(delay) { waiting ||= setTimeout(() => { waiting = 0; if (shown?.timed) draw(); }, delay); }
  const up = () => {
    if (levels.length) levels = levels.slice(0, -1); else if (inspector.node !== null) { app.selection.set(null); return true; } else return false;
    draw(true);
    return true;
  };
  let before = app.selection.value;
  const chosen = app.selection.subscribe(node => {
    if (node !== before) levels = [];
    before = node;
    draw();
  });
  const moved = app.time.subscribe(() => refresh(60));
  // without a recording the numbers are those of the stream's last row
  const heard = inspector.t === undefined ? app.live.on(context.view.name, message => { if (message.kind === "frame") refresh(500); }) : null;
  draw();
  return {
    element: panel,
    destroy() { chosen(); moved(); heard?.(); clearTimeout(waiting); shown?.destroy?.(); panel.remove(); },
    key: event => (event.key === "Escape" || event.key === "Backspace") && (levels.length > 0 || event.key === "Backspace") && up(),
  };
}
