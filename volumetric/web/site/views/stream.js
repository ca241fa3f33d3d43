// A network that remembers, step by step: a signal in, what comes out on a strip chart.
import { meaning, namesOf } from "../answers.js";
import { drawn, series } from "../canvas.js";
import { h, short } from "../elements.js";
import { feeding } from "../feeding.js";
import { fieldsOf, inputsOf, sliders, widthOf } from "../fields.js";
import { milliseconds } from "../latest_run.js";

const KEPT = 240;
const SHOWN = 60;
const MOST_LINES = 12;
const SIGNALS = {
  hand: ["Sliders", null],
  sine: ["Sine", (t, i) => Math.sin(2 * Math.PI * (t / 40 + i / 4))],
  steps: ["Steps", (t, i) => (Math.floor(t / 20 + i / 2) % 2 ? 1 : -1)],
  pulse: ["Pulses", (t, i) => ((t + 7 * i) % 25 === 0 ? 1 : 0)],
  noise: ["Noise", () => 2 * Math.random() - 1],
};

export async function show(stage, model, app) {
  const network = model.info, stream = model.stream();
  const fields = fieldsOf(network), ticks = network.kind === "ticks";
  const rows = ticks && fields.length ? feeding(network) : null;
  const columns = Object.keys(network.outputs).flatMap(port => namesOf(network, port).map((name, i) => ({ port, name, i })));
  const lines = columns.slice(0, MOST_LINES);
  let steps = 0, running = false, busy = false, past = [], held = fields.map(() => 0);

  const controls = sliders(fields.slice(0, 32), () => { signal.value = "hand"; });
  [...controls.element.querySelectorAll(".field-name")].slice(0, MOST_LINES).forEach((name, i) => name.prepend(swatch(i)));
  const signal = h("select", { "aria-label": "Signal" }, (fields.length ? Object.entries(SIGNALS) : []).map(([key, [label]]) => h("option", { value: key }, label)));
  if (fields.length) signal.value = fields.some(field => field.step === 1) ? "noise" : "sine";
  const rate = h("input", { type: "range", min: 1, max: 60, value: Math.min(60, Math.max(1, network.ui?.rate ?? 10)), "aria-label": "Steps per second" });
  const perSecond = h("span", { class: "number" });
  const shownRate = () => { perSecond.textContent = `${rate.value} steps/s`; };
  rate.addEventListener("input", shownRate);
  shownRate();

  const chart = (label, keys) => {
    const canvas = h("canvas", { class: "strip", role: "img", "aria-label": label });
    const redraw = drawn(canvas, (context, w, hgt, colour) => strip(context, w, hgt, colour, past.map(keys), keys));
    return { canvas, redraw };
  };
  const inChart = chart("Inputs over the last steps", row => row.x.slice(0, MOST_LINES));
  const outChart = chart("Outputs over the last steps", row => row.y);
  const now = h("table", { class: "now" }, h("tbody"));
  const status = h("p", { class: "note", role: "status" }), counter = h("p", { class: "dim number" });

  const values = () => {
    const make = SIGNALS[signal.value]?.[1];
    return make ? fields.map(({ low, high, step }, i) => {
      const value = low + (Math.max(-1, Math.min(1, make(steps, i))) + 1) / 2 * (high - low);
      return step === 1 ? Math.round(value) : value;
    }) : [...controls.values, ...fields.slice(32).map(field => field.value)];
  };
  const step = async () => {
    if (busy) return;
    busy = true;
    try {
      const arrive = rows?.at(steps) ?? Object.keys(network.inputs), next = values();
      const x = fields.map(({ port }, i) => (arrive.includes(port) ? next[i] : network.inputs[port].hold === "zero" ? 0 : held[i]));
      const begun = performance.now();
      const outputs = await stream.step(inputsOf(network, fields, [x], arrive));
      const time = performance.now() - begun;
      const shown = Object.fromEntries(Object.entries(outputs).map(([port, row]) => [port, meaning(network, port, row)]));
      const y = lines.map(({ port, i }) => shown[port][i]);
      held = x;
      past.push({ x, y });
      if (past.length > KEPT) past.shift();
      steps += 1;
      app.clear();
      app.speed(`${milliseconds(time)} a ${ticks ? "tick" : "step"}, ${(1000 / Math.max(time, .01)).toFixed(0)}/s possible`);
      counter.textContent = `${ticks ? "Tick" : "Step"} ${steps.toLocaleString("en")}`;
      now.tBodies[0].replaceChildren(...lines.map((line, i) => h("tr", {}, h("th", { scope: "row" }, swatch(i), line.name), h("td", { class: "number" }, short(y[i])))));
      inChart.redraw();
      outChart.redraw();
    } catch (error) {
      pause();
      app.fail(error);
    }
    busy = false;
  };
  let timer = 0;
  const loop = async () => {
    const begun = performance.now();
    await step();
    if (running) timer = setTimeout(loop, Math.max(0, 1000 / rate.valueAsNumber - (performance.now() - begun)));
  };
  const run = h("button", { type: "button", class: "main", onclick: () => (running ? pause() : start()) }, "Run");
  const start = () => { running = true; run.textContent = "Pause"; status.textContent = "Running."; loop(); };
  const pause = () => { running = false; clearTimeout(timer); run.textContent = "Run"; status.textContent = "Paused."; };
  const reset = async () => {
    try {
      await stream.reset();
      steps = 0;
      past = [];
      held = fields.map(() => 0);
      counter.textContent = "";
      status.textContent = "Reset: the network has forgotten everything.";
      inChart.redraw();
      outChart.redraw();
    } catch (error) {
      app.fail(error);
    }
  };
  const ownStep = h("button", { type: "button", onclick: () => { pause(); return step(); } }, "Step");
  addEventListener("keydown", event => {
    if (event.target.closest?.("input, textarea, select, button, summary")) return;
    if (event.key === " ") { event.preventDefault(); run.click(); }
    else if (event.key === "ArrowRight") ownStep.click();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden && running) pause(); });

  stage.replaceChildren(
    h("section", { class: "card wide", "aria-label": "Run" },
      h("div", { class: "buttons" }, run, ownStep, h("button", { type: "button", onclick: reset }, "Reset"),
        h("label", { class: "inline" }, rate, perSecond), counter), status),
    fields.length ? h("section", { class: "card", "aria-label": "Inputs" },
      h("div", { class: "row" }, h("h2", {}, "Inputs"), h("label", { class: "inline" }, "Signal ", signal)),
      rows?.element, inChart.canvas, controls.element) : null,
    h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "Outputs"), outChart.canvas, h("div", { class: "scroll" }, now),
      columns.length > lines.length ? h("p", { class: "note" }, `The first ${lines.length} of ${columns.length} outputs are shown.`) : null));
  for (let i = 0; i < 2; i++) await step();
  const still = app.reducedMotion() || network.ui?.paused;
  if (!still) start();
  else status.textContent = "Paused.";
}

const swatch = i => {
  const mark = h("span", { class: "swatch" });
  mark.style.background = `var(${series(i)})`;
  return mark;
};

/** Draw rows of numbers as lines, the newest at the right. */
function strip(context, w, hgt, colour, rows) {
  const finite = rows.flat().filter(Number.isFinite);
  if (!finite.length) return;
  let low = Math.min(0, ...finite), high = Math.max(0, ...finite);
  if (high - low < 1e-9) high = low + 1;
  const y = value => 6 + (high - value) / (high - low) * (hgt - 12), x = i => w - 4 - (rows.length - 1 - i) * (w - 8) / (Math.max(SHOWN, rows.length) - 1);
  context.strokeStyle = colour("--line");
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(0, y(0));
  context.lineTo(w, y(0));
  context.stroke();
  context.lineWidth = 1.75;
  for (let line = 0; line < rows[0].length; line++) {
    context.strokeStyle = colour(series(line));
    context.beginPath();
    rows.forEach((row, i) => (i ? context.lineTo(x(i), y(row[line])) : context.moveTo(x(i), y(row[line]))));
    context.stroke();
  }
  context.fillStyle = colour("--dim");
  context.font = "11px system-ui, sans-serif";
  context.fillText(short(high), 4, 12);
  context.fillText(short(low), 4, hgt - 4);
}
