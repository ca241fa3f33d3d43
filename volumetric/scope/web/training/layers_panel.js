// Statistics of layers over time: a heat map of layers and updates, and the curves of one layer.
import { heatMap } from "../charts/heat_map.js";
import { lineChart } from "../charts/line_chart.js";
import { h, short } from "../elements.js";
import { AXIS_NAMES } from "./curves.js";
import { choice, runChoice } from "./choices.js";

const STATISTICS = { mean: "mean", min: "minimum", max: "maximum", active: "share above 1e-6" };
const MODES = { forward: "outputs", backward: "gradients" };
const SCALES = { linear: "linear", logarithm: "logarithmic", row: "each layer its own" };

/** Return {element, update(), destroy()}; see curvesPanel. */
export function layersPanel(shared) {
  const runs = () => shared.runs().filter(run => run.layers);
  const options = { mode: "forward", statistic: "mean", scale: "linear", layer: 0 };
  const state = shared.state;
  for (const key of Object.keys(options)) if (state.get(`layers.${key}`) !== null) options[key] = state.get(`layers.${key}`);
  options.layer = Number(options.layer) || 0;
  const set = key => value => {
    options[key] = value;
    state.set(`layers.${key}`, value);
    update();
  };
  const pickRun = runChoice(runs, shared, () => update());
  const controls = h(
    "div",
    { class: "training-controls" },
    pickRun.element,
    choice("of", MODES, options.mode, set("mode")),
    choice("statistic", STATISTICS, options.statistic, set("statistic")),
    choice("colours", SCALES, options.scale, set("scale")),
  );
  const body = h("div", { class: "panel" }),
    below = h("div", { class: "training-charts" }),
    empty = h(
      "p",
      { class: "dim training-empty" },
      "No statistics of layers were recorded. Pass observers=[watch] to train, or write jsonl = true under [observe] in the file.",
    );
  const element = h("div", { class: "training-panel" }, controls, body, below, empty);
  let map = null,
    lines = null,
    active = null,
    order = [];

  const scaled = (row, range) => {
    if (options.scale === "row") {
      const finite = row.filter(Number.isFinite),
        low = Math.min(...finite),
        high = Math.max(...finite);
      return row.map(value => (high > low ? (value - low) / (high - low) : 0.5));
    }
    if (options.scale === "logarithm") return row.map(value => signedLog(value, range));
    return row;
  };
  // logarithms of both signs: 0 at the smallest size that matters, a millionth of the largest
  const signedLog = (value, most) => (Number.isFinite(value) ? Math.sign(value) * Math.max(0, Math.log10(Math.abs(value) / most) + 6) : value);
  const unlog = (value, most) => (value === 0 ? 0 : Math.sign(value) * most * 10 ** (Math.abs(value) - 6));

  function update() {
    pickRun.update();
    const run = pickRun.run();
    for (const part of [controls, body, below]) part.hidden = !run;
    empty.hidden = Boolean(run);
    if (!run) return;
    const { names, values } = run.layers,
      place = new Map(names.filter(one => one.mode === "forward").map((one, i) => [one.where, i]));
    order = names
      .map((one, i) => ({ ...one, i }))
      .filter(one => one.mode === options.mode)
      .sort((a, b) => (place.get(a.where) ?? 0) - (place.get(b.where) ?? 0));
    options.layer = Math.max(0, Math.min(options.layer, order.length - 1));
    const rows = order.map(one => values[options.statistic][one.i]),
      columns = run.layers.step.length;
    const largest = rows.flat().reduce((most, value) => (Number.isFinite(value) ? Math.max(most, Math.abs(value)) : most), 0) || 1;
    const data = rows.flatMap(row => scaled(row, largest));
    const rowNames = order.map(one => `${one.where} ${one.kind}`);
    const matrix = {
      data,
      shape: [rows.length, columns],
      rowNames,
      chosen: options.layer,
      range: options.scale === "row" ? [0, 1] : options.statistic === "active" && options.scale === "linear" ? [0, 1] : undefined,
    };
    const more = {
      rowHeight: Math.max(9, Math.min(26, Math.floor(360 / Math.max(1, rows.length)))),
      legend: value =>
        options.scale === "row"
          ? value
            ? "largest of the layer"
            : "smallest"
          : short(options.scale === "logarithm" ? unlog(value, largest) : value),
      describe: (row, column) =>
        [
          rowNames[row],
          `${AXIS_NAMES.step} ${short(run.layers.step[column])}`,
          `${STATISTICS[options.statistic]} of ${MODES[options.mode]}: ${short(rows[row][column])}`,
        ].join("\n"),
    };
    if (!map) {
      map = heatMap(matrix, {
        label: "Layers over updates: choose one for its curve",
        tooltip: shared.tooltip,
        ...more,
        onPick(row) {
          options.layer = row;
          state.set("layers.layer", row);
          shared.announce(`layer ${rowNames[row]}`);
          update();
        },
      });
      body.append(map.element);
    } else map.update(matrix, more);
    const one = order[options.layer],
      x = run.layers[shared.options.axis],
      of = name => values[name][one.i],
      colour = shared.colour(run);
    const title = `${one.where} ${one.kind}: ${MODES[options.mode]}`;
    const curves = [{ name: "mean, within minimum and maximum", x, y: of("mean"), low: of("min"), high: of("max"), colour }];
    const shares = [{ name: "share above 1e-6", x, y: of("active"), colour }];
    const xLabel = AXIS_NAMES[shared.options.axis];
    if (!lines) {
      lines = lineChart(curves, { title, xLabel, tooltip: shared.tooltip });
      active = lineChart(shares, { title: "Active share", xLabel, tooltip: shared.tooltip, format: value => `${(100 * value).toFixed(1)} %` });
      for (const chart of [lines, active]) {
        chart.element.classList.add("panel");
        below.append(chart.element);
      }
    } else {
      lines.element.querySelector("figcaption").textContent = title;
      lines.update(curves, { title, xLabel });
      active.update(shares, { xLabel });
    }
  }
  update();
  return {
    element,
    update,
    destroy() {
      lines?.destroy();
      active?.destroy();
      map?.destroy();
    },
  };
}
