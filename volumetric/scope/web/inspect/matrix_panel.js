// The level of a matrix: its numbers as colours; a large one as averages of blocks that open.
import { gradient } from "../charts/colours.js";
import { heatMap } from "../charts/heat_map.js";
import { h, short } from "../elements.js";
import { elementIndex } from "./levels.js";

/** Return the lines about one weight: value, coordinate, stored code. */
export function weightLines(parameter, block, at, row, column) {
  const lines = [`${parameter.name}[${elementIndex(parameter.shape, row, column).join(", ")}] = ${block.values.data[at]}`];
  if (block.codes) lines.push(`${block.kind === "integer" ? "code" : "bits"} ${codeText(parameter, block, at)}`);
  if (block.scale) lines.push(`= ${block.scale.data[at]} · code${block.offset ? ` + ${block.offset.data[at]}` : ""}`);
  return lines;
}

/** Return a stored code as text: an integer, or bits in hexadecimal. */
export function codeText(parameter, block, at) {
  const code = block.codes.data[at];
  return block.kind === "integer" ? String(code) : `0x${(code >>> 0).toString(16).padStart(Math.ceil(Math.min(32, parameter.bits) / 4), "0")}`;
}

/** Show a matrix, or a block of one. */
export async function showMatrix(inspector, level) {
  const { source, app } = inspector, { layer } = source.place(inspector.node);
  const parameter = layer.parameters.find(one => one.name === level.parameter);
  if (!parameter) throw new Error(`This layer has no weights ${level.parameter}.`);
  const { rows, columns } = level, block = await source.parameter(layer, parameter, rows, columns);
  const exact = Boolean(block.values), array = exact ? block.values : block[level.measure ?? "mean"];
  const vector = array.shape[0] === 1 && array.shape[1] > 32, wide = vector ? 32 : array.shape[1], count = array.data.length;
  const cells = vector ? new Float32Array(Math.ceil(count / wide) * wide).fill(NaN) : array.data;
  if (vector) cells.set(array.data);
  const shape = vector ? [cells.length / wide, wide] : array.shape;
  const [high, broad] = exact ? [1, 1] : block.part;
  const placeOf = (row, column) => (vector ? [0, row * wide + column] : [row, column]);
  const rangeOf = (row, column) => {
    const [i, j] = placeOf(row, column), top = rows[0] + i * high, left = columns[0] + j * broad;
    return { rows: [top, Math.min(rows[1], top + high)], columns: [left, Math.min(columns[1], left + broad)] };
  };
  const span = ([from, to]) => (to - from === 1 ? from : `${from}…${to - 1}`);
  function describe(row, column, value) {
    const [i, j] = placeOf(row, column);
    if (vector && j >= count) return "no weight";
    if (exact) return weightLines(parameter, block, i * array.shape[1] + j, rows[0] + i, columns[0] + j).join("\n");
    const range = rangeOf(row, column);
    return `rows ${span(range.rows)}, columns ${span(range.columns)}\nmean ${short(block.mean.data[i * array.shape[1] + j])}, root mean square ${short(block.rms.data[i * array.shape[1] + j])}\nclick: every weight`;
  }
  function pick(row, column) {
    const [i, j] = placeOf(row, column);
    if (vector && j >= count) return;
    if (exact) inspector.open({ kind: "weight", parameter: parameter.name, row: rows[0] + i, column: columns[0] + j, index: elementIndex(parameter.shape, rows[0] + i, columns[0] + j) });
    else {
      // a block of a readable size around the part
      const widen = ([from, to], size) => { const extra = Math.max(0, 64 - (to - from)), low = Math.max(0, Math.min(from - (extra >> 1), size - 64)); return [low, Math.min(size, Math.max(low + Math.min(64, size), to))]; };
      const range = rangeOf(row, column);
      inspector.open({ kind: "matrix", parameter: parameter.name, rows: widen(range.rows, parameter.matrix[0]), columns: widen(range.columns, parameter.matrix[1]) });
    }
  }
  let low = Infinity, top = -Infinity;
  for (const value of array.data) if (Number.isFinite(value)) { low = Math.min(low, value); top = Math.max(top, value); }
  const size = Math.max(Math.abs(low), Math.abs(top)) || 1, around = low < 0, range = around ? [-size, size] : [Math.min(low, 0), top > 0 ? top : 1];
  const map = heatMap({ data: cells, shape, range }, {
    tooltip: app.tooltip, announce: app.announce, describe, onPick: pick,
    blank: vector ? (row, column) => row * shape[1] + column >= count : undefined,
    cell: Math.max(2, Math.min(18, Math.floor(384 / shape[1]), Math.floor(440 / shape[0]))),
    name: `${parameter.name}: arrow keys move, Enter opens`,
  });
  map.canvas.dataset.matrix = parameter.name;
  const measures = exact ? null : h("div", { class: "inspect-chips" }, ["mean", "rms"].map(measure =>
    h("button", { type: "button", "aria-pressed": String(measure === (level.measure ?? "mean")), onclick: () => inspector.replace({ ...level, measure }) }, measure === "rms" ? "root mean square" : "mean")));
  const parts = parameter.parts && level.whole && rows[1] - rows[0] === parameter.matrix[0] && columns[1] - columns[0] === parameter.matrix[1] ? h("div", { class: "inspect-chips" }, parameter.parts.names.slice(0, 64).map((name, i) => {
    const own = [i * parameter.parts.size, (i + 1) * parameter.parts.size];
    return h("button", { type: "button", onclick: () => inspector.open({ kind: "part", name }, { kind: "matrix", parameter: parameter.name, rows: parameter.parts.axis ? rows : own, columns: parameter.parts.axis ? own : columns, whole: true }) }, name);
  })) : null;
  const { statistics } = parameter;
  return {
    element: h("div", { class: "inspect-matrix" },
      h("h2", {}, parameter.name),
      h("p", { class: "dim" }, `${parameter.shape.join(" × ")} · ${parameter.dtype} · rows ${span(rows)}, columns ${span(columns)}${exact ? "" : ` · each cell is ${high} × ${broad} weights`}`),
      measures, map.element,
      h("div", { class: "inspect-legend" }, h("span", { class: "number" }, short(range[0])), h("i", { style: `background:${gradient(around ? "PuOr" : "viridis")}` }), h("span", { class: "number" }, short(range[1]))),
      parts,
      statistics ? h("p", { class: "dim" }, `mean ${short(statistics.mean)}, standard deviation ${short(statistics.std)}, ${short(statistics.min)} … ${short(statistics.max)}${statistics.odd ? `, ${short(statistics.odd)} not finite` : ""}`) : null),
    destroy: () => map.destroy(),
  };
}
