// The levels of the inspector: what a place in it is called, and how the page's link holds it.

/**
 * A level is {kind, …}: part {name, axis, from, to}, matrix {parameter, rows, columns}, weight {parameter, row, column},
 * number {group, index, place}, step {group, index, at}.
 */
export function levelName(level) {
  switch (level.kind) {
    case "part": return level.name;
    case "matrix": return level.whole ? level.parameter : `${span(level.rows)} × ${span(level.columns)}`;
    case "weight": return `${level.parameter}[${level.index.join(", ")}]`;
    case "number": return `${level.group}[${level.place ?? level.index}]`;
    default: return `step ${level.depth}`;
  }
}

const span = ([from, to]) => (to - from === 1 ? String(from) : `${from}…${to - 1}`);

const KINDS = new Set(["part", "matrix", "weight", "number", "step"]);

/** Return the levels of a node as a text for a link; "" without levels. */
export const writeLink = (view, node, levels) => (levels.length ? JSON.stringify({ view, node, levels }) : "");

/** Return {node, levels} of such a text, or null if it is none of this view with its `count` nodes. */
export function readLink(text, view, count) {
  try {
    const link = JSON.parse(text || "null");
    const fits = link?.view === view && Number.isInteger(link.node) && link.node >= 0 && link.node < count;
    return fits && Array.isArray(link.levels) && link.levels.length < 12 && link.levels.every(level => KINDS.has(level?.kind)) ? link : null;
  } catch {
    return null;
  }
}

/** Return the index of an element of a tensor from its place in the matrix that shows it. */
export function elementIndex(shape, row, column) {
  if (shape.length < 2) return [column];
  const index = [];
  let rest = column;
  for (let axis = shape.length - 1; axis > 0; axis--) { index.unshift(rest % shape[axis]); rest = Math.floor(rest / shape[axis]); }
  return [row, ...index];
}

/** Return [row, column] of an element of a tensor in the matrix that shows it. */
export function matrixPlace(shape, index) {
  if (shape.length < 2) return [0, index[0] ?? 0];
  return [index[0], index.slice(1).reduce((at, i, axis) => at * shape[axis + 1] + i, 0)];
}
