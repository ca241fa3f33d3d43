// Samples of numbers with what should come out: the network learns them, and the page shows what it makes of them meanwhile.
import { answers, areClasses, meaning, namesOf } from "../answers.js";
import { series } from "../canvas.js";
import { button, h, short } from "../elements.js";
import { fieldsOf, inputsOf, listOf, sliders, widthOf } from "../fields.js";
import { latestRun } from "../latest_run.js";
import { lessons } from "../lessons.js";
import { plane } from "../plane.js";
import { saveFile } from "../save_file.js";
import { csv, linesOf, numberOf, pasteBox } from "../tables.js";

const MOST_SLIDERS = 64;
const MOST_SAMPLES = 5000;
const MOST_LISTED = 100; // samples of the table: the newest ones
const MOST_COLUMNS = 8; // inputs of the table
const MOST_RADIOS = 8;
const UPDATES = 20; // after each new sample

export async function show(stage, model, app) {
  const network = model.info, fields = fieldsOf(network), goals = goalsOf(network), answer = answers(network);
  const [output] = Object.keys(network.outputs), flat = fields.length === 2 && goals.length === 1;
  const classed = goals.length === 1 && goals[0].names !== null;
  const shown = fields.slice(0, MOST_COLUMNS), columns = Object.keys(network.outputs).flatMap(port => (areClasses(network, port) ? [{ port, name: "predicted", i: null }]
    : namesOf(network, port).map((name, i) => ({ port, name: `${name}, predicted`, i }))));
  const rest = fields.slice(MOST_SLIDERS).map(field => field.value), rowOf = values => [...values, ...rest];
  let share = null;

  const keys = `Keys: arrows move the cross, Enter adds, Delete removes the nearest${classed ? ", digits choose the class" : ""}.`;
  const wanted = goalControls(goals);
  const ask = latestRun(model, outputs => answer.show(Object.fromEntries(Object.entries(outputs).map(([port, all]) => [port, all.subarray(0, widthOf(network.outputs[port]))]))), app.fail);
  const now = () => ask(inputsOf(network, fields, [rowOf(controls.values)]));
  const controls = sliders(fields.slice(0, MOST_SLIDERS), () => { now(); field?.redraw(); });
  const field = flat ? plane(model, fields, {
    samples: () => lesson.samples.map(({ x, y }) => ({ x, y: y[0] })), cross: () => controls.values, step: controls.set, keys,
    point(pair, event) {
      controls.set(pair);
      if (event.type === "pointerdown") add(pair);
    },
  }) : null;

  const body = h("tbody"), table = h("table", {}, h("thead", {}, h("tr", {}, [...shown.map(one => one.name), ...goals.map(goal => goal.name), ...columns.map(column => column.name)].map(name => h("th", { scope: "col", class: "out" }, name)),
    h("th", {}, h("span", { class: "unseen" }, "Remove")))), body);
  const listed = h("p", { class: "dim", role: "status" });
  const lesson = await lessons(model, app, {
    batchOf: samples => [inputsOf(network, fields, samples.map(sample => sample.x)), targetsOf(network, goals, samples)],
    measure: classed ? { name: "right of the newest samples", value: () => share, clear() { share = null; } } : null,
    learnt: () => Promise.all([now(), predict(), field?.fill()]),
    changed: list,
    note: `It makes ${UPDATES} updates after each sample that you add, on your GPU: each of samples drawn from all of yours.`,
  });
  const newest = () => lesson.samples.slice(-MOST_LISTED).reverse();
  const addAll = more => {
    if (lesson.samples.length + more.length > MOST_SAMPLES) throw new Error(`There is room for ${MOST_SAMPLES} samples: remove some first.`);
    lesson.add(...more);
    if (!lesson.learning) void lesson.learn(UPDATES);
  };
  const add = x => {
    try {
      app.clear();
      addAll([{ x: [...x], y: wanted.values() }]);
    } catch (error) {
      app.fail(error);
    }
  };
  const removed = sample => lesson.keep(one => one !== sample);

  function list() {
    const samples = newest(), count = lesson.samples.length;
    body.replaceChildren(...samples.map((sample, r) => h("tr", {},
      shown.map((_, i) => h("td", { class: "number" }, short(sample.x[i]))),
      goals.map((goal, g) => h("td", { class: "number" }, goal.names ? goal.names[sample.y[g]] : short(sample.y[g]))),
      columns.map(() => h("td", { class: "out number" }, "…")),
      h("td", {}, button("×", `Remove sample ${count - r}`, () => {
        removed(sample);
        (body.rows[Math.min(r, body.rows.length - 1)]?.querySelector("button") ?? adds).focus(); // where the keyboard was
      })))));
    table.hidden = !samples.length;
    const hidden = [count > samples.length ? `The newest ${samples.length} of ${count} samples` : "", fields.length > shown.length ? `the first ${shown.length} of ${fields.length} inputs` : ""].filter(Boolean);
    listed.textContent = samples.length ? hidden.length ? `${hidden.join(", ")}.` : "" : "No samples yet.";
    field?.redraw();
    predict().catch(app.fail);
  }
  /** Write what the network makes of the samples that are listed. */
  async function predict() {
    const samples = newest();
    if (!samples.length) return;
    const outputs = await model.run(inputsOf(network, fields, samples.map(sample => sample.x)));
    const same = newest();
    if (same.length !== samples.length || same.some((one, i) => one !== samples[i])) return; // they have changed meanwhile
    let right = 0;
    samples.forEach((sample, r) => {
      const parts = Object.fromEntries(Object.entries(outputs).map(([port, all]) => [port, meaning(network, port, all.subarray(r * widthOf(network.outputs[port]), (r + 1) * widthOf(network.outputs[port])))]));
      columns.forEach(({ port, i }, c) => {
        const best = parts[port].indexOf(Math.max(...parts[port]));
        body.rows[r].cells[shown.length + goals.length + c].textContent = i === null ? `${namesOf(network, port)[best]}, ${(100 * parts[port][best]).toFixed(0)} %` : short(parts[port][i]);
        if (classed && best === sample.y[0]) right++;
      });
    });
    share = classed ? right / samples.length : null;
  }

  const pasted = text => addAll(parseSamples(text, fields.length, goals));
  const save = () => saveFile("samples.csv", csv([...fields, ...goals].map(one => one.name), lesson.samples.map(({ x, y }) => [...x, ...y.map((value, g) => goals[g].names?.[value] ?? value)])), "text/csv");
  const adds = h("button", { type: "button", class: flat ? "" : "main", onclick: () => add(rowOf(controls.values)) }, "Add these inputs");
  field?.canvas.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") add(controls.values);
    else if (event.key === "Delete" || event.key === "Backspace") removed(nearest(lesson.samples, controls.values, fields));
    else if (!(classed && wanted.choose(Number(event.key) - 1))) return;
    event.preventDefault();
  });
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": flat ? "Plane" : "Inputs" },
      h("h2", {}, flat ? "Teach" : "Inputs"), flat ? wanted.element : null,
      flat ? h("div", { class: "plane" }, field.canvas) : null,
      flat ? h("p", { class: "note" }, `Across: ${fields[0].name}. Up: ${fields[1].name}. Click to add a sample. ${keys}`) : null,
      controls.element, flat ? null : wanted.element, h("div", { class: "buttons" }, adds)),
    h("div", { class: "column" }, h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "Outputs"), answer.element), lesson.card),
    h("section", { class: "card wide", "aria-label": "Samples" }, h("h2", {}, "Samples"),
      h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Samples and predictions" }, table), listed,
      h("div", { class: "buttons" },
        h("button", { type: "button", onclick: () => removed(lesson.samples.at(-1)) }, "Undo"),
        h("button", { type: "button", onclick: () => lesson.keep(() => false) }, "Remove all"),
        h("button", { type: "button", onclick: save }, "Save samples")),
      pasteBox(`Rows of ${fields.length} inputs and ${goals.length} targets`, [...fields.slice(0, 4), ...goals.slice(0, 4)].map(one => one.name).join(", "), pasted, app)));
  const first = listOf(network.ui?.samples).filter(one => one?.x?.length === fields.length && goals.length === 1 && fits(goals[0], one.y));
  if (first.length) lesson.add(...first.map(({ x, y }) => ({ x: [...x], y: [y] })));
  else list();
  await Promise.all([now(), field?.fill()]);
}

/** What should come out: a class, or each number, of each output that has a loss: {port, name, names: of classes, or null}. */
function goalsOf(network) {
  return Object.entries(network.learner.targets).flatMap(([port, { classes }]) => {
    const names = namesOf(network, port);
    return classes === undefined ? names.map(name => ({ port, name, names: null })) : [{ port, name: Object.keys(network.outputs).length > 1 ? port : "class", names }];
  });
}

const fits = ({ names }, value) => (names ? Number.isInteger(value) && value >= 0 && value < names.length : Number.isFinite(value));

/** Targets of samples as the learner takes them. */
function targetsOf(network, goals, samples) {
  return Object.fromEntries(Object.entries(network.learner.targets).map(([port, { dtype }]) => {
    const own = goals.flatMap((goal, g) => (goal.port === port ? [g] : []));
    return [port, (dtype === "int32" ? Int32Array : Float32Array).from(samples.flatMap(sample => own.map(g => sample.y[g])))];
  }));
}

/** Controls of what should come out: {element, values(), choose(class)}. */
function goalControls(goals) {
  const controls = goals.map(({ name, names }, g) => {
    if (names === null) {
      const box = h("input", { type: "number", step: "any", value: 0, "aria-label": `${name}, target` });
      return { element: h("label", { class: "inline" }, name, box), value: () => box.valueAsNumber, choose: () => false };
    }
    if (names.length > MOST_RADIOS) {
      const list = h("select", { "aria-label": name }, names.map((one, i) => h("option", { value: i }, one)));
      return { element: h("label", { class: "inline" }, name, list), value: () => Number(list.value), choose: () => false };
    }
    const radios = names.map((_, i) => h("input", { type: "radio", name: `goal-${g}`, value: i, checked: i === 0 }));
    const swatch = i => {
      const mark = h("span", { class: "swatch" });
      mark.style.background = `var(${series(i)})`;
      return mark;
    };
    return {
      element: h("div", { class: "buttons", role: "radiogroup", "aria-label": name }, names.map((one, i) => h("label", { class: "inline" }, radios[i], swatch(i), one))),
      value: () => radios.findIndex(radio => radio.checked),
      choose(i) { if (radios[i]) radios[i].checked = true; return Boolean(radios[i]); },
    };
  });
  return {
    element: h("div", { class: "buttons" }, controls.map(control => control.element)),
    values: () => controls.map(({ value }, g) => {
      const number = value();
      if (!Number.isFinite(number)) throw new Error(`${goals[g].name} must be a number.`);
      return number;
    }),
    choose: i => controls[0].choose(i),
  };
}

/** The sample that is nearest to a point, by the ranges of the fields. */
function nearest(samples, at, fields) {
  const far = ({ x }) => fields.reduce((sum, { low, high }, i) => sum + ((x[i] - at[i]) / (high - low)) ** 2, 0);
  return samples.reduce((best, sample) => (best && far(best) <= far(sample) ? best : sample), undefined);
}

/** Return samples from lines with inputs, then targets: classes by name or number. A first line of names is skipped. */
export function parseSamples(text, inputs, goals) {
  const lines = linesOf(text), names = lines[0]?.cells ?? [];
  if (lines.length > 1 && names.length && names.slice(0, inputs).every(cell => Number.isNaN(numberOf(cell)))) lines.shift();
  return lines.map(({ line, cells, text: shown }) => {
    const x = cells.slice(0, inputs).map(numberOf), y = goals.map(({ names: classes }, g) => {
      const cell = cells[inputs + g] ?? "", named = classes ? classes.indexOf(cell) : -1;
      return named < 0 ? numberOf(cell) : named;
    });
    if (cells.length !== inputs + goals.length || !x.every(Number.isFinite)) throw new Error(`Line ${line} must have ${inputs} inputs and ${goals.length === 1 ? "a target" : `${goals.length} targets`}, it is: ${shown}`);
    goals.forEach((goal, g) => { if (!fits(goal, y[g])) throw new Error(`Line ${line}: ${cells[inputs + g]} is not ${goal.names ? `a class: they are ${goal.names.slice(0, 12).join(", ")}` : "a number"}`); });
    return { x, y };
  });
}
