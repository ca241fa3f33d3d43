// The levels of the inspector: what a place in it is called, and how the page's link holds it.

/**
 * A level is {kind, …}: part {name, axis, from, to}, matrix {parameter, rows, columns}, weight {parameter, row, column},
 * number {group, index}, step {group, index, at}.
 */
export function levelName(level) {
  switch (level.kind) {
    case "part": return level.name;
    case "matrix": return level.whole ? level.parameter : `${span(level.rows)} × ${span(level.columns)}`;
    case "weight": return `[${level.index.join(", ")}]`;
    case "number": return `${level.group}[${level.index}]`;
    default: return `step ${level.depth}`;
  }
}

const span = ([from, to]) => (to - from === 1 ? String(from) : `${from}…${to - 1}`);

/** Return levels as a text for a link. */
export const writeLevels = levels => (levels.length ? JSON.stringify(levels) : "");

/** Return the levels of a text; [] if it is not one. */
export function readLevels(text) {
  try {
    const levels = JSON.parse(text || "[]");
    const known = new Set(["part", "matrix", "weight", "number", "step"]);
    return Array.isArray(levels) && levels.length < 12 && levels.every(level => known.has(level?.kind)) ? levels : [];
  } catch {
    return [];
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
