// The scene as seen, as numbers for a figure that Matplotlib draws.
import { LOOK } from "./node_tables.js";

const MOST_NODES = 20000,
  MOST_EDGES = 40000;

const mixed = (rgb, ground, share) => `rgb(${rgb.map((x, i) => Math.round(x * share + ground[i] * (1 - share))).join(", ")})`;

/** Return {kind: "scene", width, height, title, marks, strokes}, the farthest marks first; even samples of very large scenes. */
export function sceneFigure({ nodes, places, edges, rgba, strength, labels, width, height, title, theme }) {
  const seen = [],
    names = new Map(labels.filter(label => label.node !== undefined).map(label => [label.node, label.text]));
  const inside = i => places[4 * i + 2] === places[4 * i + 2];
  for (let i = 0; i < nodes.count; i++) if (inside(i)) seen.push(i);
  seen.sort((a, b) => places[4 * b + 2] - places[4 * a + 2]);
  const every = Math.max(1, Math.ceil(seen.length / MOST_NODES)),
    strokes = [],
    round = x => Math.round(x * 100) / 100;
  const marks = seen
    .filter((_, k) => k % every === 0)
    .map(i => {
      const p = 4 * i,
        bits = nodes.looks[p + 3],
        share = bits & LOOK.ghost ? 0.15 : bits & LOOK.dim ? 0.32 : 1;
      return {
        x: round(places[p]),
        y: round(places[p + 1]),
        size: round(2 * places[p + 3]),
        colour: mixed([...nodes.looks.subarray(p, p + 3)], theme.back, share),
        label: names.get(i) ?? "",
      };
    });
  const count = edges?.source.data.length ?? 0,
    step = Math.max(1, Math.ceil(count / MOST_EDGES));
  for (let i = 0; i < count; i += step) {
    const a = 4 * edges.source.data[i],
      b = 4 * edges.target.data[i];
    if (a === b || !inside(a / 4) || !inside(b / 4)) continue;
    strokes.push({
      x0: round(places[a]),
      y0: round(places[a + 1]),
      x1: round(places[b]),
      y1: round(places[b + 1]),
      colour: mixed([...rgba.subarray(4 * i, 4 * i + 3)], theme.back, 1),
      width: 1.2,
      opacity: round((rgba[4 * i + 3] / 255) * strength),
    });
  }
  return { kind: "scene", width, height, title, marks, strokes };
}
