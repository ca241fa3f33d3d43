// Two recordings of one scene: the first, the second, their difference, or both scenes side by side.
import { button, h, short } from "../elements.js";
import { makeRenderer } from "../scene/renderer.js";

const SAMPLES = 128; // frames from which the range of the difference is taken

/** Return the frame of `second` at the tick of frame k of `first`, or null where it has none. */
export function matched(first, second, k) {
  if (!first.count || !second.count) return null;
  const tick = first.tick(k), at = second.at(tick);
  return second.tick(at) === tick ? at : null;
}

/** Return the largest difference of two recordings at the same ticks, of up to SAMPLES frames; 1 if there is none. */
export function largestDifference(first, second, relative) {
  const one = new Float32Array(first.nodes), other = new Float32Array(first.nodes), stride = Math.max(1, Math.floor(first.count / SAMPLES));
  let most = 0;
  for (let k = first.first; k <= first.last; k += stride) {
    const at = matched(first, second, k);
    if (at === null) continue;
    first.fill(k, one);
    second.fill(at, other);
    for (let i = 0; i < one.length; i++) {
      const size = Math.abs(other[i] - one[i]) / (relative ? relative[first.groupOf[i]] || 1 : 1);
      if (size > most) most = size;
    }
  }
  return most || 1;
}

/** Return {element, mode, split, second, show(values), destroy()}; `changed` is called when another comparison is chosen. */
export function makeComparison({ app, tables, renderer, names, changed }) {
  const modes = [["first", names[0]], ["second", names[1]], ["difference", "Difference"]];
  const asked = app.state.get("compare");
  let mode = modes.some(([key]) => key === asked) ? asked : "first", second = null, quiet = false;
  const buttons = modes.map(([key, label]) => button(
    h("span", {}, key === "difference" ? "" : h("span", { class: `swatch time-${key}` }), label),
    key === "difference" ? `Show ${names[1]} − ${names[0]} (D)` : `Show ${label} (D)`, () => choose(key), { "data-mode": key }));
  const divide = button("◫", "Both scenes side by side", () => { if (second) join(); else divided(); }, { "data-mode": "split" });
  const element = h("div", { class: "time-modes", role: "group", "aria-label": "Compare two recordings" }, ...buttons, divide);
  const stage = renderer.canvas.parentElement, captions = [];
  function mark() {
    for (const one of buttons) one.setAttribute("aria-pressed", String(!second && one.dataset.mode === mode));
    divide.setAttribute("aria-pressed", String(second !== null));
  }
  function choose(next) {
    if (second) join();
    mode = next;
    app.state.set("compare", mode === "first" ? null : mode);
    mark();
    changed();
    app.announce(mode === "difference" ? `difference: ${names[1]} minus ${names[0]}` : `showing ${mode === "first" ? names[0] : names[1]}`);
  }
  function follow(from, to) {
    return from.onCamera?.(() => { if (!quiet) { quiet = true; to.setCameraState(from.cameraState); quiet = false; } });
  }
  function divided() {
    const host = h("div", { class: "scene-stage time-second" });
    stage.parentElement.classList.add("divided");
    stage.after(host);
    const other = makeRenderer(host, tables, app);
    for (const [i, of] of [stage, host].entries()) {
      captions[i] = h("p", { class: "time-caption" }, names[i]);
      of.append(captions[i]);
    }
    second = { renderer: other, host };
    second.ends = [follow(renderer, other), follow(other, renderer), app.selection.subscribe(node => other.select(node))];
    other.onSelect(node => app.selection.set(node));
    other.onHover((node, event) => {
      if (node === null) app.tooltip.hide(); else app.tooltip.show(event.clientX, event.clientY, other.describe?.(node) ?? tables.names[node]);
    });
    if (renderer.cameraState) other.setCameraState(renderer.cameraState);
    if (renderer.choice) other.setChoice?.(renderer.choice);
    other.select(app.selection.value);
    app.state.set("split", 1);
    mark();
    changed();
    app.announce(`${names[0]} and ${names[1]} side by side`);
  }
  function join() {
    for (const end of second.ends) end?.();
    second.renderer.destroy();
    second.host.remove();
    for (const caption of captions) caption.remove();
    stage.parentElement.classList.remove("divided");
    second = null;
    app.state.set("split", null);
    mark();
    changed();
  }
  mark();
  return {
    element,
    get mode() { return second ? "first" : mode; },
    get second() { return second?.renderer ?? null; },
    start() { if (app.state.get("split")) divided(); },
    turn() { choose(modes[(modes.findIndex(([key]) => key === mode) + 1) % 3][0]); },
    say: range => `${names[1]} − ${names[0]}, ±${short(Number(range.toPrecision(3)))}`,
    destroy() { if (second) join(); },
  };
}
