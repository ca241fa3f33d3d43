// Names of nodes and numbers of axes on a flat canvas above the scene; none lies on another.
import { h } from "../elements.js";

const MOST = 70,
  LETTERS = 28,
  CHECKED = 6000;

const cut = text => (text.length > LETTERS ? `${text.slice(0, LETTERS - 1)}…` : text);

/** Return which labels to show as [{x, y, text, strong, faint}], those asked for first; each x, y is the middle of its top. */
export function chooseLabels({ nodes, places, names, first, everyone, ticks, point, at, measure, width, height }) {
  const chosen = [],
    cells = new Map();
  const free = (x, y, wide, tall) => {
    if (x < 0 || y < 0 || x + wide > width || y + tall > height) return false;
    const across = [];
    for (let i = Math.floor(x / 40); i <= (x + wide) / 40; i++) for (let j = Math.floor(y / 16); j <= (y + tall) / 16; j++) across.push(i * 1000 + j);
    for (const cell of across)
      for (const [a, b, c, d] of cells.get(cell) ?? []) if (x < a + c && a < x + wide && y < b + d && b < y + tall) return false;
    for (const cell of across) {
      if (!cells.has(cell)) cells.set(cell, []);
      cells.get(cell).push([x, y, wide, tall]);
    }
    return true;
  };
  const put = (x, y, text, more) => {
    const wide = measure(text, more.strong) + 6;
    if (free(x - wide / 2, y, wide, 15)) chosen.push({ x, y, text, ...more });
  };
  for (const tick of ticks) {
    const at = point(tick.at);
    if (at) put(at.x, at.y - 7, tick.text, { faint: true, strong: tick.strong });
  }
  const of = places(),
    seen = node => of[4 * node + 2] === of[4 * node + 2];
  const label = (node, strong) => {
    if (seen(node)) put(of[4 * node], of[4 * node + 1] + of[4 * node + 3] * 1.15 + 2, cut(names[node]), { node, strong });
  };
  for (const node of first) label(node, true);
  if (everyone) {
    const near = [],
      named = new Set(first);
    for (let i = 0; i < nodes.count; i++) {
      const p = 4 * i;
      if (
        seen(i) &&
        !named.has(i) &&
        of[p + 3] >= (nodes.count <= 24 ? 2 : nodes.count <= 120 ? 7 : 12) &&
        of[p] > 0 &&
        of[p + 1] > 0 &&
        of[p] < width &&
        of[p + 1] < height
      )
        near.push(i);
    }
    near.sort((a, b) => of[4 * a + 2] - of[4 * b + 2]);
    const open = node => nodes.count > CHECKED || at(of[4 * node], of[4 * node + 1]) === node; // not behind another
    for (const node of near.slice(0, MOST)) if (open(node)) label(node, false);
  }
  return chosen;
}

/** Return {canvas, draw(choose), destroy()}; `choose(measure)` returns what chooseLabels does. */
export function makeLabels(host, dark) {
  const canvas = h("canvas", { class: "scene-labels", "aria-hidden": "true" }),
    brush = canvas.getContext("2d");
  host.append(canvas);
  const font = strong => `${strong ? 600 : 400} 11.5px system-ui, sans-serif`;
  const measure = (text, strong) => {
    brush.font = font(strong);
    return brush.measureText(text).width;
  };
  return {
    canvas,
    measure,
    /** Write labels on the canvas, or on another brush. */
    write(labels, width, height, ratio) {
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.width = `${width}px`;
        canvas.style.height = `${height}px`;
      }
      brush.setTransform(ratio, 0, 0, ratio, 0, 0);
      brush.clearRect(0, 0, width, height);
      brush.textAlign = "center";
      brush.textBaseline = "top";
      brush.lineJoin = "round";
      brush.lineWidth = 3;
      const style = getComputedStyle(host),
        back = style.getPropertyValue("--stage"),
        front = style.getPropertyValue("--front"),
        dim = style.getPropertyValue("--dim");
      for (const { x, y, text, strong, faint } of labels) {
        brush.font = font(strong);
        brush.strokeStyle = back;
        brush.fillStyle = faint ? dim : front;
        brush.strokeText(text, x, y + 1);
        brush.fillText(text, x, y + 1);
      }
    },
    destroy() {
      canvas.remove();
    },
  };
}
