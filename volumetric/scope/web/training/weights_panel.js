// Weights over time: norms and changes of all arrays, and the histograms of one of them by epoch.
import { heatMap } from "../charts/heat_map.js";
import { lineChart } from "../charts/line_chart.js";
import { ridgeline } from "../charts/ridgeline.js";
import { h, short } from "../elements.js";
import { choice, runChoice } from "./choices.js";

const NUMBERS = { relative: "change since the epoch before, relative", change: "change since the epoch before", norm: "norm" };
const MOST_RIDGES = 24;

/** Return {element, update(), destroy()}; see curvesPanel. */
export function weightsPanel(shared) {
  const runs = () => shared.runs().filter(run => run.weights),
    state = shared.state;
  const options = { number: state.get("weights.number", "relative"), array: state.get("weights.array") };
  if (!(options.number in NUMBERS)) options.number = "relative";
  const pickRun = runChoice(runs, shared, () => update());
  const controls = h(
    "div",
    { class: "training-controls" },
    pickRun.element,
    choice("colour", NUMBERS, options.number, value => {
      options.number = value;
      state.set("weights.number", value);
      update();
    }),
  );
  const body = h("div", { class: "panel" }),
    below = h("div", { class: "training-charts" }),
    empty = h(
      "p",
      { class: "dim training-empty" },
      "No weights were recorded. Pass reporters=[watch] to train, or write weights = true under [history] in the file.",
    );
  const element = h("div", { class: "training-panel" }, controls, body, below, empty);
  let map = null,
    ridges = null,
    norms = null,
    changes = null;

  function update() {
    pickRun.update();
    const run = pickRun.run();
    for (const part of [controls, body, below]) part.hidden = !run;
    empty.hidden = Boolean(run);
    if (!run) return;
    const { keys, shapes, epoch, norm, change, low, high, shares } = run.weights;
    const epochs = epoch.data.length,
      many = keys.length,
      bins = shares.shape[2];
    const size = shape => shape.reduce((a, b) => a * b, 1),
      largest = shapes.reduce((best, shape, k) => (size(shape) > size(shapes[best]) ? k : best), 0);
    const chosen = keys.includes(options.array) ? keys.indexOf(options.array) : largest;
    const start = options.number !== "norm" && epochs > 1 ? 1 : 0; // nothing precedes the first epoch
    const value = (k, e) => {
      const at = e * many + k;
      return options.number === "norm" ? norm.data[at] : options.number === "change" ? change.data[at] : change.data[at] / norm.data[at];
    };
    const data = keys.flatMap((_, k) => Array.from({ length: epochs - start }, (_, e) => value(k, e + start)));
    const text = number => (options.number === "relative" ? `${short(100 * number)} %` : short(number));
    const describe = (k, at) => {
      const e = at + start,
        entry = Number.isFinite(value(k, e)) ? text(value(k, e)) : "no epoch before, or not finite";
      const lines = [`${keys[k]}  ${shapes[k].join(" × ")}`, `epoch ${short(epoch.data[e] + 1)}`, `${NUMBERS[options.number]}: ${entry}`];
      return [...lines, `norm ${short(norm.data[e * many + k])}`].join("\n");
    };
    const matrix = { data, shape: [many, epochs - start], rowNames: keys, chosen };
    const more = { rowHeight: Math.max(9, Math.min(26, Math.floor(360 / Math.max(1, many)))), legend: text, describe };
    if (!map) {
      map = heatMap(matrix, {
        label: "Arrays over epochs: choose one for its histograms",
        tooltip: shared.tooltip,
        ...more,
        onPick(k) {
          options.array = run.weights.keys[k];
          state.set("weights.array", options.array);
          shared.announce(`weights ${options.array}`);
          update();
        },
      });
      body.append(map.element);
    } else map.update(matrix, more);
    const key = keys[chosen],
      column = of => Array.from({ length: epochs }, (_, e) => of.data[e * many + chosen]);
    const x = Array.from(epoch.data, number => number + 1),
      colour = shared.colour(run);
    const picks = Array.from({ length: Math.min(epochs, MOST_RIDGES) }, (_, i) =>
      epochs <= MOST_RIDGES ? i : Math.round((i * (epochs - 1)) / (MOST_RIDGES - 1)),
    );
    const rows = picks.map(e => ({
      label: `epoch ${short(x[e])}`,
      low: low.data[e * many + chosen],
      high: high.data[e * many + chosen],
      shares: Array.from(shares.data.subarray((e * many + chosen) * bins, (e * many + chosen + 1) * bins), share => share / 65535),
    }));
    const of = name => run.weights.keys[chosen] && [{ name, x, y: column(name === "norm" ? norm : change), colour, dots: true }];
    const title = `Values of ${key}, ${shapes[chosen].join(" × ")}`;
    if (!ridges) {
      ridges = ridgeline(rows, { title, xLabel: "value", tooltip: shared.tooltip, height: 380 });
      norms = lineChart(of("norm"), { title: `Norm of ${key}`, xLabel: "epochs", tooltip: shared.tooltip, height: 160 });
      changes = lineChart(of("change"), { title: "Change since the epoch before", xLabel: "epochs", tooltip: shared.tooltip, height: 160 });
      ridges.element.classList.add("panel");
      below.append(ridges.element, h("div", { class: "training-stack" }, norms.element, changes.element));
      for (const chart of [norms, changes]) chart.element.classList.add("panel");
    } else {
      ridges.element.querySelector("figcaption").textContent = title;
      norms.element.querySelector("figcaption").textContent = `Norm of ${key}`;
      ridges.update(rows);
      norms.update(of("norm"));
      changes.update(of("change"));
    }
  }
  update();
  return {
    element,
    update,
    destroy() {
      for (const chart of [map, ridges, norms, changes]) chart?.destroy();
    },
  };
}
