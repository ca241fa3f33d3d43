// Numbers over time as lines on a canvas, from 0 or the lowest to the highest.
import { drawn, series } from "./canvas.js";
import { h, short } from "./elements.js";
import { linePath } from "./line_path.js";

const MOST = 600; // points of a curve: neighbours become their mean beyond it

/** Return {element, add(values), clear()}: a chart of curves with these names; null in `values` leaves a gap. */
export function curves(names, label) {
  let rows = [], each = 1, waiting = [], last = null; // a point stands for so many rows
  const canvas = h("canvas", { class: "strip", role: "img", "aria-label": label });
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
    said.textContent = last ? names.map((name, k) => `${name} ${Number.isFinite(last[k]) ? short(last[k]) : "–"}`).join(", ") : "";
    canvas.setAttribute("aria-label", last ? `${label}: ${said.textContent}` : label);
    redraw();
  };
  const add = values => {
    last = values;
    waiting.push(values);
    if (waiting.length >= each) {
      rows.push(mean(waiting));
      waiting = [];
    }
    if (rows.length > MOST) {
      rows = Array.from({ length: Math.ceil(rows.length / 2) }, (_, i) => mean(rows.slice(2 * i, 2 * i + 2)));
      each *= 2;
    }
    tell();
  };
  const clear = () => {
    [rows, waiting] = [[], []];
    each = 1;
    last = null;
    tell();
  };
  const key = h("p", { class: "row curve-key" }, names.map((name, k) => h("span", {}, h("span", { class: `swatch swatch-${k + 1}` }), name)), said);
  return { element: h("div", {}, canvas, key), add, clear };
}

/** The mean of each column, without gaps. */
function mean(rows) {
  return rows[0].map((_, k) => {
    const values = rows.map(row => row[k]).filter(Number.isFinite);
    return values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
  });
}
