// Numbers in, numbers out: sliders for one row, a table for many.
import { answers, meaning, namesOf } from "../answers.js";
import { copyButton } from "../copy_button.js";
import { button, h, short } from "../elements.js";
import { fieldsOf, inputsOf, listOf, sliders, widthOf } from "../fields.js";
import { genomePicture } from "../genome_picture.js";
import { latestRun, milliseconds } from "../latest_run.js";
import { sampleCheck, samplesOf } from "../sample_check.js";
import { parseRows, pasteBox } from "../tables.js";

const MOST_SLIDERS = 64;
const MOST_ROWS = 256;

export async function show(stage, model, app) {
  const network = model.info;
  const fields = fieldsOf(network), answer = answers(network);
  const first = outputs => Object.fromEntries(Object.entries(outputs).map(([port, row]) => [port, row.subarray(0, widthOf(network.outputs[port]))]));
  const ask = latestRun(model, (outputs, time) => {
    app.clear();
    answer.show(first(outputs));
    app.speed(`${milliseconds(time)} a call`);
  }, app.fail);
  const controls = sliders(fields.slice(0, MOST_SLIDERS), values => ask(inputsOf(network, fields, [rowOf(values)])));
  const rest = fields.slice(MOST_SLIDERS).map(field => field.value);
  const rowOf = values => [...values, ...rest];
  const middle = h("button", { type: "button", onclick: () => controls.set(fields.slice(0, MOST_SLIDERS).map(field => field.value)) }, "Reset");
  const chance = h("button", { type: "button", onclick: () => controls.set(fields.slice(0, MOST_SLIDERS).map(random)) }, "Random");
  const picture = genomePicture(network.ui?.genome), samples = sampleCheck(model, fields, samplesOf(network, fields));
  const table = rowTable(model, fields, app, () => rowOf(controls.values));
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Inputs" }, h("h2", {}, "Inputs"), controls.element,
      rest.length ? h("p", { class: "note" }, `${rest.length} more inputs keep their values; the table has all.`) : null,
      h("div", { class: "buttons" }, middle, chance)),
    h("div", { class: "column" },
      h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "Outputs"), answer.element),
      picture ? h("section", { class: "card", "aria-label": "Genome" }, h("h2", {}, "Genome"), picture) : null,
      samples.element),
    table);
  await ask(inputsOf(network, fields, [rowOf(controls.values)]));
  samples.check().catch(app.fail);
}

const random = ({ low, high, step }) => (step === 1 ? Math.floor(low + Math.random() * (high - low + 1)) : low + Math.random() * (high - low));

/** Rows side by side with their outputs; cells can be edited and rows pasted. */
function rowTable(model, fields, app, current) {
  const network = model.info, rows = [];
  const columns = Object.keys(network.outputs).flatMap(port => namesOf(network, port).map((name, i) => ({ port, name, i })));
  const body = h("tbody"), table = h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Row"), fields.map(field => h("th", { scope: "col" }, field.name)),
      columns.map(column => h("th", { scope: "col", class: "out" }, column.name)), h("th", {}, h("span", { class: "unseen" }, "Remove")))),
    body);
  const count = h("p", { class: "dim", role: "status" });

  const ask = latestRun(model, outputs => {
    app.clear();
    [...body.rows].forEach((line, r) => {
      const parts = Object.fromEntries(Object.entries(outputs).map(([port, all]) => {
        const width = widthOf(network.outputs[port]);
        return [port, meaning(network, port, all.subarray(r * width, (r + 1) * width))];
      }));
      columns.forEach(({ port, i }, c) => {
        const cell = line.cells[1 + fields.length + c], value = parts[port][i];
        if (cell && value !== undefined) cell.textContent = short(value);
      });
    });
  }, app.fail);
  const compute = () => (rows.length ? ask(inputsOf(network, fields, rows)) : null);

  const render = () => {
    body.replaceChildren(...rows.map((row, r) => h("tr", {},
      h("th", { scope: "row" }, r + 1),
      row.map((value, i) => h("td", {}, h("input", {
        type: "number", step: "any", value: Number(value.toPrecision(6)), "aria-label": `${fields[i].name}, row ${r + 1}`,
        oninput: event => { if (Number.isFinite(event.target.valueAsNumber)) { row[i] = event.target.valueAsNumber; compute(); } },
      }))),
      columns.map(() => h("td", { class: "out number" }, "…")),
      h("td", {}, button("×", `Remove row ${r + 1}`, () => removeRow(r))))));
    table.hidden = clear.disabled = copy.disabled = !rows.length;
    count.textContent = rows.length ? "" : "No rows yet.";
    compute();
  };
  const removeRow = r => {
    rows.splice(r, 1);
    render();
    (body.rows[Math.min(r, rows.length - 1)]?.querySelector("button") ?? first).focus(); // where the keyboard was
  };
  const first = h("button", { type: "button", onclick: () => add([current().slice()]) }, "Add these inputs");
  const written = () => [...table.rows].map((line, r) => [...line.cells].slice(1, -1).map(cell => (r ? cell.querySelector("input")?.value ?? cell.textContent : cell.textContent)).join("\t")).join("\n");
  const clear = h("button", { type: "button", onclick: () => { rows.length = 0; render(); first.focus(); } }, "Clear"), copy = copyButton(written, "Copy table");
  const add = more => {
    rows.push(...more.slice(0, MOST_ROWS - rows.length));
    render();
    if (rows.length === MOST_ROWS) count.textContent = `The table holds ${MOST_ROWS} rows.`;
  };
  const paste = pasteBox(`Rows of ${fields.length} numbers`, fields.slice(0, 4).map(field => field.name).join(", "), text => add(parseRows(text, fields.length)), app);
  add(listOf(network.ui?.rows).filter(row => Array.isArray(row) && row.length === fields.length && row.every(Number.isFinite)));
  return h("section", { class: "card wide", "aria-label": "Table" }, h("h2", {}, "Table"),
    h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Rows and their outputs" }, table), count,
    h("div", { class: "buttons" },
      first,
      h("button", { type: "button", onclick: () => add([fields.map(random)]) }, "Add a random row"),
      clear, copy),
    paste);
}
