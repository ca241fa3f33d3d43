// Strip charts: one line over time for each chosen node and for meters of all nodes.
import { button, h, short } from "../elements.js";
import { classColour } from "../charts/colours.js";
import { eachColumn, frameAt, placeOf, sharpen, soon, themeOf } from "./pixels.js";

/** Maximum number of nodes with a strip. */
export const MOST = 12;
const METERS = { mean: "mean of all nodes", odd: "nodes not finite" };

/**
 * Return {element, draw(), show(k), choose(node), nodes(), destroy()}.
 *
 * tables: the scene; frames() returns [{frames, colour?}] of one or two recordings, whose lines share a strip; other(k) returns the
 * frame of the second at the first's k; window() the frames in view; go(k) shows a frame.
 */
export function makeStrips({ app, tables, frames, other, window, go, unit, onZoom }) {
  const names = tables.names, list = h("div", { class: "time-strips", role: "list", "aria-label": "Strips of chosen nodes" });
  const cursor = h("div", { class: "time-cursor", hidden: true });
  const add = h("select", { "aria-label": "Add a strip of all nodes", onchange() { if (add.value) { meters.add(add.value); rebuild(); } } });
  const more = h("div", { class: "time-strip-foot" }, add, h("span", { class: "dim" }, "Choose a node to see its strip; pin it to keep it."));
  const element = h("div", { class: "time-part" }, h("div", { class: "time-scroll" }, h("div", { class: "time-lines" }, list, cursor)), more);
  const known = i => Number.isInteger(i) && i >= 0 && i < names.length;
  const pinned = new Set((app.state.get("strips") ?? "").split(",").filter(Boolean).map(Number).filter(known).slice(0, MOST));
  const meters = new Set(["mean"]);
  let chosen = null, rows = [], shown = 0;

  function strip({ key, title, colour, value, node, actions }) {
    const canvas = h("canvas", { class: "time-strip-line", role: "img" });
    const number = h("output", { class: "number" }), span = h("span", { class: "dim number time-strip-range" });
    const row = h("div", { class: "time-strip", role: "listitem", "data-strip": key },
      h("div", { class: "time-strip-head" },
        h("span", { class: "swatch", style: `background:${colour}` }), h("span", { class: "time-strip-name", title }, title),
        span, number, ...actions),
      canvas);
    const share = event => { const box = canvas.getBoundingClientRect(); return (event.clientX - box.left) / box.width; };
    const pick = event => go(frameAt(share(event), window()));
    let pressed = false;
    canvas.addEventListener("pointerdown", event => { pressed = true; canvas.setPointerCapture(event.pointerId); pick(event); });
    canvas.addEventListener("pointerup", () => { pressed = false; });
    canvas.addEventListener("pointermove", event => {
      if (pressed) pick(event);
      const k = frameAt(share(event), window()), [{ frames: of }] = frames();
      const text = () => `${unit} ${of.tick(k).toLocaleString("en")}\n${title}: ${say(value(of, k), node)}`;
      if (of.count) app.tooltip.show(event.clientX, event.clientY, text());
    });
    canvas.addEventListener("pointerleave", () => app.tooltip.hide());
    canvas.addEventListener("wheel", event => onZoom(event, share(event)), { passive: false });
    return { key, row, canvas, number, span, value, node, title, colour };
  }
  const say = (x, node) => (Number.isFinite(x) ? short(Number(x.toPrecision(4))) + (node === undefined ? "" : " rms") : "not finite");

  function rebuild() {
    const wanted = [...meters].filter(name => METERS[name]).map(name => ({
      key: `meter.${name}`, title: METERS[name], colour: "var(--dim)", value: (of, k) => of.meter(name, k),
      actions: [button("×", `Remove the strip ${METERS[name]}`, () => { meters.delete(name); rebuild(); }, { class: "plain" })],
    }));
    for (const node of new Set([...pinned, ...(chosen === null ? [] : [chosen])])) {
      const keep = pinned.has(node);
      wanted.push({
        key: `node.${node}`, title: names[node], colour: classColour(tables.group.data[node]), node, value: (of, k) => of.value(k, node),
        actions: [
          button(keep ? "◆" : "◇", `Pin the strip of ${names[node]}`, () => pin(node), { class: "plain", "aria-pressed": String(keep) }),
          button("×", `Remove the strip of ${names[node]}`, () => remove(node), { class: "plain" }),
        ],
      });
    }
    rows = wanted.map(strip);
    list.replaceChildren(...rows.map(one => one.row));
    const others = Object.keys(METERS).filter(name => !meters.has(name));
    add.replaceChildren(h("option", { value: "" }, "Add a strip…"), ...others.map(name => h("option", { value: name }, METERS[name])));
    add.hidden = add.options.length < 2;
    draw();
    show(shown);
  }
  function save() { app.state.set("strips", [...pinned].join(",")); }
  function remove(node) {
    pinned.delete(node);
    if (chosen === node) chosen = null;
    save();
    rebuild();
  }
  function pin(node) {
    if (pinned.has(node)) pinned.delete(node);
    else if (pinned.size >= MOST) { app.notify(`there are ${MOST} pinned strips: let go of one first`); return; }
    else pinned.add(node);
    save();
    rebuild();
  }
  function paint() {
    const all = frames();
    if (!all[0].frames.count) return;
    const theme = themeOf(element), [a, b] = window();
    for (const one of rows) {
      const place = sharpen(one.canvas);
      if (!place) continue;
      const { brush, width, height } = place, lines = [];
      let top = 0, bottom = Infinity;
      for (const [n, { frames: of }] of all.entries()) {
        const line = [];
        eachColumn(width, [a, b], (x, from, to) => {
          let low = Infinity, high = -Infinity, odd = false;
          const stride = Math.max(1, Math.ceil((to - from) / 16));
          for (let k = from; k < to; k += stride) {
            const at = n === 0 ? k : other(k);
            if (at === null || !of.has(at)) continue;
            const y = one.value(of, at);
            if (Number.isFinite(y)) { low = Math.min(low, y); high = Math.max(high, y); } else odd = true;
          }
          line.push([x, low, high, odd, n === 0 && to - from < 64 && hasReset(of, from, to)]);
          top = Math.max(top, high);
          bottom = Math.min(bottom, low);
        });
        lines.push(line);
      }
      const from = bottom > top / 2 && bottom < top ? bottom : 0;
      const y = value => height - 2 - (height - 5) * (top > from ? (value - from) / (top - from) : 0);
      brush.fillStyle = theme("--grid");
      brush.fillRect(0, height - 1, width, 1);
      for (const [x, , , , reset] of lines[0]) if (reset) brush.fillRect(x, 0, 1, height);
      const few = b - a + 1 < width / 2;
      for (const [n, line] of lines.entries()) {
        const colour = all.length > 1 ? theme(n === 0 ? "--first" : "--second") : one.colour.startsWith("var") ? theme("--dim") : one.colour;
        brush.strokeStyle = brush.fillStyle = colour;
        brush.globalAlpha = .3;
        if (!few) for (const [x, low, high] of line) if (high > low) brush.fillRect(x, y(high), 1, Math.max(1, y(low) - y(high)));
        brush.globalAlpha = 1;
        brush.lineWidth = 1.4;
        brush.beginPath();
        let open = false;
        for (const [x, low, high, odd] of line) {
          if (low > high || odd) { open = false; continue; }
          const height = y(few ? high : (low + high) / 2);
          if (open) brush.lineTo(x + .5, height); else brush.moveTo(x + .5, height);
          open = true;
        }
        brush.stroke();
        brush.fillStyle = theme("--odd");
        for (const [x, , , odd] of line) if (odd) brush.fillRect(x, 0, 1.5, height);
      }
      const range = [from, top].map(x => short(Number(x.toPrecision(3))));
      one.span.textContent = range.join(" … ");
      one.canvas.setAttribute("aria-label", `${one.title} over time, from ${range[0]} to ${range[1]}`);
    }
  }
  const hasReset = (of, from, to) => { for (let k = from; k < to; k++) if (of.reset(k)) return true; return false; };
  const draw = soon(paint), watcher = new ResizeObserver(draw);
  watcher.observe(element);
  function show(k) {
    shown = k;
    const all = frames(), place = placeOf(k, window());
    cursor.hidden = place < 0 || place > 1 || !rows.length || !all[0].frames.count;
    if (!cursor.hidden) cursor.style.left = `${100 * place}%`;
    if (!all[0].frames.count) return;
    const [first, second] = all, at = second ? other(k) : null;
    for (const one of rows) {
      const values = [one.value(first.frames, k)];
      if (second) values.push(at === null ? NaN : one.value(second.frames, at));
      one.number.textContent = values.map((x, i) => (i && at === null ? "–" : say(x, one.node))).join(" | ");
      one.number.classList.toggle("odd", !Number.isFinite(values[0]));
    }
  }
  rebuild();
  return {
    element, draw, show,
    /** Show the strip of the chosen node until another one is chosen. */
    choose(node) { chosen = node; rebuild(); },
    nodes: () => rows.filter(one => one.node !== undefined).map(one => one.node),
    pin,
    destroy() { watcher.disconnect(); },
  };
}
