// Numbers over time as lines on a canvas, from 0 or the lowest to the highest.
import { drawn, series } from "./canvas.js";
import { h, short } from "./elements.js";
import { linePath } from "./line_path.js";

/** Return {element, add(values), clear()}: a chart of curves with these names; null in `values` leaves a gap. */
export function curves(names, label) {
  const rows = [], canvas = h("canvas", { class: "strip", role: "img", "aria-label": label });
  const said = h("p", { class: "dim number" });
  const redraw = drawn(canvas, (context, w, hgt, colour) => {
    const all = rows.flat().filter(Number.isFinite), low = all.reduce((a, b) => Math.min(a, b), 0), high = all.reduce((a, b) => Math.max(a, b), low + 1e-9);
    const y = value => hgt - 6 - (value - low) / (high - low) * (hgt - 12);
    const x = i => rows.length > 1 ? i / (rows.length - 1) * (w - 4) + 2 : w / 2, steps = rows.map((_, i) => i);
    names.forEach((_, k) => {
      context.strokeStyle = colour(series(k));
      context.lineWidth = 2;
      context.stroke(new Path2D(linePath({ x: steps, y: rows.map(row => row[k]) }, { x, y, usable: Number.isFinite })));
    });
  });
  const tell = () => {
    said.textContent = rows.length ? names.map((name, k) => `${name} ${Number.isFinite(rows.at(-1)[k]) ? short(rows.at(-1)[k]) : "–"}`).join(", ") : "";
    canvas.setAttribute("aria-label", rows.length ? `${label}: ${said.textContent}` : label);
    redraw();
  };
  const key = h("p", { class: "row curve-key" }, names.map((name, k) => h("span", {}, h("span", { class: `swatch swatch-${k + 1}` }), name)), said);
  return { element: h("div", {}, canvas, key), add(values) { rows.push(values); tell(); }, clear() { rows.length = 0; tell(); } };
}
