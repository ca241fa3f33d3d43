// Tables as text: lines with commas, semicolons, tabs or spaces between cells, as spreadsheets and Python write them.
import { h } from "./elements.js";

/** Return the cells of a line; one in quotes may hold separators, and quotes that are doubled. */
export function cellsOf(line) {
  const separator = ["\t", ";", ","].find(one => line.includes(one));
  if (!separator) return line.trim().split(/\s+/);
  const cells = [""];
  let quoted = false;
  for (let i = 0; i < line.length; i++) {
    const letter = line[i];
    if (letter === '"' && quoted && line[i + 1] === '"') cells[cells.length - 1] += line[++i];
    else if (letter === '"' && (quoted || !cells.at(-1).trim())) quoted = !quoted;
    else if (letter === separator && !quoted) cells.push("");
    else cells[cells.length - 1] += letter;
  }
  return cells.map(cell => cell.trim());
}

/** Return the lines of a text that are not empty, each as cells, with their text: [{line, cells, text}]. */
export const linesOf = text => text.split(/\r?\n/).map((line, i) => ({ line: i + 1, cells: cellsOf(line), text: line.slice(0, 60) })).filter(one => one.text.trim());

/** A cell as a number; an empty one is none. */
export const numberOf = cell => (cell.trim() ? Number(cell) : NaN);

/** Return rows of numbers. */
export function parseRows(text, width) {
  return linesOf(text).map(({ line, cells, text: shown }) => {
    const row = cells.map(numberOf);
    if (row.length !== width || !row.every(Number.isFinite)) throw new Error(`Line ${line} must have ${width} numbers, it is: ${shown}`);
    return row;
  });
}

/** Return rows as CSV with a line of names, which `volumetric.train` reads. */
export function csv(names, rows) {
  const cell = value => (/[",;\t\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return [names, ...rows].map(row => `${row.map(cell).join(",")}\n`).join("");
}

/** A box to paste rows into; `take(text)` adds them, and throws if they are none. */
export function pasteBox(label, placeholder, take, app) {
  const box = h("textarea", { rows: 3, "aria-label": label, placeholder });
  const add = () => {
    try {
      take(box.value);
      box.value = "";
      app.clear();
    } catch (error) {
      app.fail(error);
    }
  };
  return h("details", {}, h("summary", {}, "Paste rows"), h("div", { class: "paste" }, box, h("button", { type: "button", onclick: add }, "Add them")));
}
