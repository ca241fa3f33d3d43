// The numbers of a node at the frame that is shown: coloured cells, each of which can be explained.
import { heatMap } from "../charts/heat_map.js";
import { h, short } from "../elements.js";
import { elementIndex } from "./levels.js";

/** Return {element, timed, destroy()} of the numbers of the chosen node. */
export async function showNumbers(inspector) {
  const { node, source, app, t } = inspector, unit = source.ticks ? "tick" : "row";
  if (t === null || !(source.live || source.rows.length)) return null;
  const title = h("h3", {}, t === undefined ? "Numbers" : `Numbers at ${unit} ${t + 1}`);
  let answer;
  try {
    answer = await source.numbers(node, t);
  } catch (error) {
    const nearest = [...source.rows].sort((a, b) => Math.abs(a - t) - Math.abs(b - t))[0];
    const go = nearest === undefined ? null : h("button", { type: "button", onclick: () => inspector.goTo(nearest) }, `Go to ${unit} ${nearest + 1}`);
    if (source.live && !source.count) return { timed: true, element: null };
    return { timed: true, element: h("section", {}, title, h("p", { class: "dim" }, error.message || `This page has the numbers of some ${unit}s, not of this one.`), go) };
  }
  if (t === undefined) title.textContent = `Numbers at ${unit} ${answer.t + 1}`;
  const maps = [], parts = [];
  for (const group of answer.groups) {
    const { data } = group.values, count = data.length;
    if (!count) continue;
    const inner = group.shape.slice(1).reduce((a, b) => a * b, 1), whole = group.shape.length > 1 && count === group.count;
    const columns = whole && inner <= 64 ? inner : whole && group.shape.at(-1) <= 64 ? group.shape.at(-1) : Math.min(count, count > 256 ? 32 : 16);
    const placeOf = index => elementIndex(group.shape, Math.floor(index / inner), group.shape.length > 1 ? index % inner : index).join(", ");
    const rows = Math.ceil(count / columns), cells = new Float64Array(rows * columns).fill(NaN);
    cells.set(data);
    const open = (row, column) => { const index = row * columns + column; if (index < count) inspector.open({ kind: "number", group: group.name, index, place: placeOf(index) }); };
    const map = heatMap({ data: cells, shape: [rows, columns] }, {
      blank: (row, column) => row * columns + column >= count,
      tooltip: app.tooltip, label: `${group.name} · ${short(group.count)} ${group.count === 1 ? "number" : "numbers"}`, announce: app.announce, onPick: open,
      describe: (row, column, value) => (row * columns + column < count ? `${group.name}[${placeOf(row * columns + column)}] = ${value}\nclick: where it comes from` : "no number"),
    });
    map.canvas.dataset.group = group.name;
    maps.push(map);
    parts.push(map.element, count < group.count ? h("p", { class: "dim" }, `the first ${short(count)} are shown`) : null);
  }
  const why = answer.fired === false ? h("p", { class: "dim" }, `It does not compute at this ${unit}: it keeps its output.`) : null;
  return { timed: true, element: h("section", { class: "inspect-numbers" }, title, why, parts), destroy() { for (const map of maps) map.destroy(); } };
}
