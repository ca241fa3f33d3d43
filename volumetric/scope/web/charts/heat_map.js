// A matrix as coloured cells on a canvas, with the exact value under the pointer.
import { h, short } from "../elements.js";
import { colourTable, gradient } from "./colours.js";

/**
 * Return {element, canvas, update(matrix), destroy()}.
 *
 * matrix: {data: typed array, shape: [rows, columns], rowNames?, columnNames?, range?: [low, high]}; a range around 0 is
 * made for maps around 0. options: {map, label, name (for screen readers, without a label), tooltip,
 * describe(row, column, value) → text, onPick(row, column), onHover(row or null, column), announce(text) (of a cell
 * reached by keys), blank(row, column) → true for a cell that is not drawn, cell}; with rowHeight in pixels the columns
 * fill the width, names of rows stand on the left, and a legend below: {rowHeight, legend(value) → text}
 */
export function heatMap(matrix, options = {}) {
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": options.name ?? options.label ?? "matrix", class: "heat" });
  const names = h("div", { class: "heat-names", "aria-hidden": "true" }), legend = h("div", { class: "heat-legend" });
  const body = options.rowHeight ? [h("div", { class: "heat-wide" }, names, canvas), legend] : canvas;
  const element = h("figure", { class: "chart" }, options.label ? h("figcaption", {}, options.label) : null, body);
  let current = matrix, at = [0, 0];

  function limits() {
    if (current.range) return current.range;
    let low = Infinity, high = -Infinity;
    for (const value of current.data) if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    if (low > high) return [0, 1];
    if (low < 0) { const size = Math.max(-low, high); return [-size, size]; }
    return low === high ? [low, low + 1] : [low, high];
  }
  function draw() {
    const [rows, columns] = current.shape, [low, high] = limits();
    const table = colourTable(options.map ?? (low < 0 ? "PuOr" : "viridis"));
    canvas.width = Math.max(1, columns);
    canvas.height = Math.max(1, rows);
    const side = options.cell ?? Math.max(1, Math.min(18, Math.floor(640 / Math.max(rows, columns))));
    canvas.style.width = options.rowHeight ? "100%" : `${columns * side}px`;
    if (options.rowHeight) drawFrame(rows, low, high);
    canvas.style.imageRendering = "pixelated";
    const brush = canvas.getContext("2d"), image = brush.createImageData(canvas.width, canvas.height);
    for (let i = 0; i < rows * columns; i++) {
      const value = current.data[i], finite = Number.isFinite(value);
      if (options.blank?.(Math.floor(i / columns), i % columns)) continue;
      const code = 3 * Math.max(0, Math.min(255, Math.round((value - low) / (high - low) * 255)));
      image.data.set(finite ? [table[code], table[code + 1], table[code + 2], 255] : [194, 24, 91, 255], 4 * i);
    }
    brush.putImageData(image, 0, 0);
  }
  function drawFrame(rows, low, high) {
    const height = options.rowHeight, text = options.legend ?? short;
    canvas.style.height = `${rows * height}px`;
    names.replaceChildren(...(current.rowNames ?? []).map((name, row) => h("span", {
      style: `height:${height}px;line-height:${height}px`, class: row === current.chosen ? "chosen" : null, title: name,
    }, name)));
    const scale = h("span", { class: "heat-scale", style: `background:${gradient(options.map ?? (low < 0 ? "PuOr" : "viridis"))}` });
    legend.replaceChildren(h("span", {}, text(low)), scale, h("span", {}, text(high)));
  }
  const describe = (row, column) => {
    const value = current.data[row * current.shape[1] + column];
    return options.describe?.(row, column, value)
      ?? `${current.rowNames?.[row] ?? `row ${row}`}, ${current.columnNames?.[column] ?? `column ${column}`}: ${short(value)}`;
  };
  const cellOf = event => {
    const box = canvas.getBoundingClientRect();
    return [Math.floor((event.clientY - box.top) / box.height * current.shape[0]), Math.floor((event.clientX - box.left) / box.width * current.shape[1])];
  };
  const inside = ([row, column]) => row >= 0 && column >= 0 && row < current.shape[0] && column < current.shape[1];
  canvas.addEventListener("pointermove", event => {
    at = cellOf(event);
    if (inside(at)) options.tooltip?.show(event.clientX, event.clientY, describe(...at)); else options.tooltip?.hide();
    if (inside(at)) options.onHover?.(...at); else options.onHover?.(null, null);
  });
  canvas.addEventListener("pointerleave", () => { options.tooltip?.hide(); options.onHover?.(null, null); });
  canvas.addEventListener("click", event => { at = cellOf(event); if (inside(at)) options.onPick?.(...at); });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Enter" && inside(at)) options.onPick?.(...at);
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = [at[0] + step[0], at[1] + step[1]];
    if (!inside(next)) return;
    at = next;
    options.onHover?.(...at);
    const box = canvas.getBoundingClientRect();
    options.announce?.(describe(...at).split("\n").join(", "));
    options.tooltip?.show(box.left + (at[1] + .5) / current.shape[1] * box.width, box.top + (at[0] + .5) / current.shape[0] * box.height, describe(...at));
  });
  element.figureData = () => ({
    kind: "matrix", title: options.label ?? "", shape: current.shape, map: options.map ?? (limits()[0] < 0 ? "PuOr" : "viridis"), range: limits(),
    values: Array.from(current.data, value => (Number.isFinite(value) ? value : null)), rowNames: current.rowNames ?? [], columnNames: current.columnNames ?? [],
  });
  draw();
  return { element, canvas, update(next, more = {}) { current = next; Object.assign(options, more); draw(); }, destroy() { element.remove(); } };
}
