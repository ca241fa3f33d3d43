// A raster of activity: nodes from top to bottom, group by group, and frames from left to right.
import { h, short } from "../elements.js";
import { classColour, colourTable } from "../charts/colours.js";
import { frameAt, placeOf, sharpen, soon, themeOf } from "./pixels.js";

const SAMPLES = 4; // of the frames, and of the nodes, that share a pixel
const BAND = 5; // pixels of the band with the colour of a group

/** Return the nodes in the order of their groups, and [[group, first place, number of nodes]]. */
export function orderByGroup(groupOf, groups) {
  const starts = new Uint32Array(groups + 1);
  for (const group of groupOf) starts[group + 1]++;
  for (let g = 0; g < groups; g++) starts[g + 1] += starts[g];
  const order = new Uint32Array(groupOf.length), next = starts.slice();
  for (let i = 0; i < groupOf.length; i++) order[next[groupOf[i]]++] = i;
  return { order, bands: Array.from({ length: groups }, (_, g) => [g, starts[g], starts[g + 1] - starts[g]]).filter(band => band[2]) };
}

/** Return {element, canvas, draw(), show(k), choose(node), destroy()}; the arguments are those of strips.js, and
 * cell(k, node), what a pixel shows from 0 to 1, and mode(), "difference" for colours around the middle. */
export function makeRaster({ app, tables, frames, cell, mode, window, go, unit, onZoom }) {
  const canvas = h("canvas", { class: "time-raster", tabindex: 0, role: "img", "aria-describedby": "time-raster-keys" });
  const cursor = h("div", { class: "time-cursor", hidden: true }), rule = h("div", { class: "time-rule", hidden: true });
  const note = h("p", { class: "time-note dim" });
  const field = h("div", { class: "time-field" }, canvas, cursor, rule);
  const element = h("div", { class: "time-part" }, field, note,
    h("span", { id: "time-raster-keys", class: "unseen" }, "Arrows move to another node or frame; Enter chooses the node."));
  const { order, bands } = orderByGroup(tables.group.data, tables.groups.length);
  const placeOfNode = new Uint32Array(order.length);
  order.forEach((node, place) => { placeOfNode[node] = place; });
  const sheet = h("canvas");
  let chosen = null, shown = 0, at = null;

  function paint() {
    const [{ frames: of }] = frames(), place = sharpen(canvas);
    if (!place || !of.count) return;
    const { brush, width, height } = place, theme = themeOf(canvas), [a, b] = window();
    const between = mode() === "difference", table = colourTable(between ? "PuOr" : "viridis"), middle = between ? .5 : 0;
    const columns = Math.max(1, width - BAND), count = b - a + 1;
    const image = brush.createImageData(columns, height), pixels = new Uint32Array(image.data.buffer);
    const colours = Uint32Array.from({ length: 256 }, (_, i) => 255 << 24 | table[3 * i + 2] << 16 | table[3 * i + 1] << 8 | table[3 * i]);
    const [red, green, blue] = theme("--odd").match(/[\da-f]{2}/gi).map(pair => parseInt(pair, 16));
    const oddColour = 255 << 24 | blue << 16 | green << 8 | red;
    const samples = (total, pixels) => Math.max(1, Math.min(SAMPLES, Math.ceil(total / pixels)));
    const nodeSteps = samples(order.length, height), frameSteps = samples(count, columns);
    const ks = Uint32Array.from({ length: columns * frameSteps }, (_, i) => a + Math.min(count - 1, Math.floor(i / frameSteps * count / columns)));
    for (let y = 0; y < height; y++) {
      const nodes = [];
      for (let s = 0; s < nodeSteps; s++) nodes.push(order[Math.min(order.length - 1, Math.floor((y + s / nodeSteps) * order.length / height))]);
      for (let x = 0, last = -1, colour = 0; x < columns; x++) {
        const first = ks[x * frameSteps];
        if (frameSteps === 1 && first === last) { pixels[y * columns + x] = colour; continue; }
        let high = -1, odd = false;
        for (let s = 0; s < frameSteps; s++) {
          for (const node of nodes) {
            const value = cell(ks[x * frameSteps + s], node);
            if (value === null) continue;
            if (Number.isNaN(value)) odd = true; else if (high < 0 || Math.abs(value - middle) > Math.abs(high - middle)) high = value;
          }
        }
        colour = odd ? oddColour : high < 0 ? 0 : colours[Math.round(255 * high)];
        pixels[y * columns + x] = colour;
        last = first;
      }
    }
    sheet.width = columns;
    sheet.height = height;
    sheet.getContext("2d").putImageData(image, 0, 0);
    brush.imageSmoothingEnabled = false;
    brush.drawImage(sheet, BAND, 0, columns, height);
    for (const [g, start, size] of bands) {
      brush.fillStyle = classColour(g);
      const high = size / order.length * height, gap = bands.length > 1 && high > 3 ? 1 : 0;
      brush.fillRect(0, start / order.length * height, BAND - 1, Math.max(1, high - gap));
    }
    const every = Math.ceil(count / columns / frameSteps), share = Math.ceil(order.length / height / nodeSteps);
    note.textContent = [
      `${order.length.toLocaleString("en")} nodes × ${count.toLocaleString("en")} frames`,
      between ? "" : "dark to yellow: the range of a node's group",
      every > 1 || share > 1 ? `a pixel shows ${nodeSteps * frameSteps} samples of what it covers` : "",
    ].filter(Boolean).join("; ");
    const groups = bands.slice(0, 8).map(([g]) => tables.groups[g]).join(", ");
    canvas.setAttribute("aria-label", `Activity of ${order.length} nodes over ${count} frames, by group: ${groups}`);
  }
  const draw = soon(paint), watcher = new ResizeObserver(draw);
  watcher.observe(canvas);
  const offset = () => BAND / Math.max(1, canvas.clientWidth);
  function spot(event) {
    const box = canvas.getBoundingClientRect(), x = (event.clientX - box.left - BAND) / (box.width - BAND);
    const place = Math.floor((event.clientY - box.top) / box.height * order.length);
    return { k: frameAt(Math.max(0, Math.min(1, x)), window()), node: order[Math.max(0, Math.min(order.length - 1, place))], x };
  }
  function tell(k, node, x, y) {
    const [{ frames: of }] = frames(), value = of.value(k, node);
    const said = Number.isFinite(value) ? `${short(Number(value.toPrecision(4)))} rms` : "not finite";
    const lines = [`${tables.names[node]} (${tables.groups[tables.group.data[node]]})`, `${unit} ${of.tick(k).toLocaleString("en")}: ${said}`];
    app.tooltip.show(x, y, [...lines, ...(of.isFired(k, node) ? [] : ["did not compute"])].join("\n"));
  }
  canvas.addEventListener("pointermove", event => {
    if (!frames()[0].frames.count) return;
    const { k, node } = spot(event);
    tell(k, node, event.clientX, event.clientY);
  });
  canvas.addEventListener("pointerleave", () => app.tooltip.hide());
  canvas.addEventListener("click", event => {
    if (!frames()[0].frames.count) return;
    const { k, node } = spot(event);
    go(k);
    app.selection.set(node);
  });
  canvas.addEventListener("wheel", event => onZoom(event, Math.max(0, spot(event).x)), { passive: false });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    const place = at ?? (chosen === null ? 0 : placeOfNode[chosen]);
    if (event.key === "Enter") app.selection.set(order[place]);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    at = Math.max(0, Math.min(order.length - 1, place + step[0]));
    const [{ frames: of }] = frames(), k = of.clamp(shown + step[1]);
    if (step[1]) go(k);
    const box = canvas.getBoundingClientRect();
    tell(k, order[at], box.left + BAND + placeOf(k, window()) * (box.width - BAND), box.top + (at + .5) / order.length * box.height);
  });
  canvas.addEventListener("blur", () => { at = null; app.tooltip.hide(); });
  function mark() {
    rule.hidden = chosen === null;
    if (chosen !== null) rule.style.top = `${100 * (placeOfNode[chosen] + .5) / order.length}%`;
  }
  return {
    element, canvas, draw,
    show(k) {
      shown = k;
      const place = placeOf(k, window());
      cursor.hidden = place < 0 || place > 1 || !frames()[0].frames.count;
      if (!cursor.hidden) cursor.style.left = `${100 * (offset() + place * (1 - offset()))}%`;
    },
    choose(node) { chosen = node; at = null; mark(); },
    destroy() { watcher.disconnect(); },
  };
}
