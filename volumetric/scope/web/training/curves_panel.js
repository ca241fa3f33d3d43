// The curves of all runs: one chart for each quantity.
import { lineChart } from "../charts/line_chart.js";
import { h, short } from "../elements.js";
import { AXIS_NAMES, smoothed } from "./curves.js";

const NAMES = {
  loss: "Loss",
  accuracy: "Accuracy",
  metric: "Metric",
  gradient_norm: "Gradient norm",
  rate: "Learning rate",
  update_seconds: "Time of an update",
};
const ORDER = ["loss", "accuracy", "metric", "gradient_norm", "rate", "update_seconds"];

/** Return {element, update(), destroy()}; `shared` is {runs(), colour(run), options, tooltip}, options are {axis, smoothing, log}. */
export function curvesPanel(shared) {
  const element = h("div", { class: "training-charts" });
  const empty = h("p", { class: "dim" }, "No points yet.");
  const charts = new Map();

  /** Return the quantities that a shown run has. */
  function quantities(runs) {
    const names = new Set(
      runs.flatMap(run => [...Object.keys(run.steps.values), ...Object.keys(run.epochs.values)]).map(name => name.replace(/^validation_/, "")),
    );
    const place = name => (ORDER.includes(name.split("/")[0]) ? ORDER.indexOf(name.split("/")[0]) : ORDER.length) + (name.includes("/") ? 0.5 : 0);
    return [...names].sort((a, b) => place(a) - place(b) || (a < b ? -1 : 1));
  }
  function seriesOf(name, runs) {
    const several = runs.length > 1,
      { axis, smoothing } = shared.options;
    return runs.flatMap(run => {
      const colour = shared.colour(run),
        base = { colour },
        lines = [];
      const of = run.steps.values[name] ? run.steps : run.epochs,
        values = of.values[name];
      const label = several ? run.name : "training";
      if (values) {
        const bands = of.count.some(count => count > 1),
          x = of[axis];
        if (smoothing > 0 && of === run.steps)
          lines.push({
            ...base,
            name: `${label} raw`,
            x,
            y: values.mean,
            faint: true,
            ...(bands ? { low: values.low, high: values.high } : {}),
          });
        lines.push({
          ...base,
          name: label,
          x,
          y: smoothing > 0 ? smoothed(values.mean, of.count, smoothing) : values.mean,
          dots: of === run.epochs,
          ...(bands && !(smoothing > 0) ? { low: values.low, high: values.high } : {}),
        });
      }
      const held = run.epochs.values[`validation_${name}`];
      if (held)
        lines.push({
          ...base,
          name: `${several ? `${run.name}, ` : ""}validation`,
          x: run.epochs[axis],
          y: held.mean,
          dashed: true,
          dots: true,
        });
      return lines;
    });
  }
  function marksOf(runs, name) {
    const { axis } = shared.options;
    return runs.flatMap(run =>
      run.marks
        .filter(mark => ["diverged", "weights", name].includes(mark.name))
        .map(mark => ({
          x: axis === "step" ? mark.step : at(run.steps, axis, mark.step),
          text: runs.length > 1 ? `${run.name}: ${mark.text}` : mark.text,
        }))
        .filter(mark => Number.isFinite(mark.x)),
    );
  }
  const at = (curves, axis, step) => {
    const k = curves.step.findIndex(value => value >= step);
    return curves[axis][k < 0 ? curves.step.length - 1 : k];
  };
  const title = name => {
    const [kind, output] = name.split("/");
    return `${NAMES[kind] ?? kind}${output ? ` of ${output}` : ""}`;
  };

  function update() {
    const runs = shared.runs(),
      names = quantities(runs);
    for (const [name, chart] of charts)
      if (!names.includes(name)) {
        chart.destroy();
        charts.delete(name);
      }
    empty.hidden = names.length > 0;
    names.forEach((name, i) => {
      const kind = name.split("/")[0],
        seconds = kind === "update_seconds",
        share = kind === "accuracy";
      const more = {
        xLabel: AXIS_NAMES[shared.options.axis],
        log: shared.options.log && !share,
        marks: marksOf(runs, name),
        format: seconds ? value => `${short(value * 1000)} ms` : share ? value => `${(100 * value).toFixed(2)} %` : short,
      };
      const series = seriesOf(name, runs);
      if (!charts.has(name)) {
        const chart = lineChart(series, { title: title(name), height: i ? 220 : 340, tooltip: shared.tooltip, ...more });
        chart.element.classList.add("panel");
        if (!i) chart.element.classList.add("training-first");
        charts.set(name, chart);
      } else charts.get(name).update(series, more);
    });
    const wanted = names.map(name => charts.get(name).element);
    if (wanted.some((one, i) => element.children[i] !== one) || element.childElementCount !== wanted.length + 1)
      element.replaceChildren(...wanted, empty);
  }
  update();
  return {
    element,
    update,
    destroy() {
      for (const chart of charts.values()) chart.destroy();
    },
  };
}
