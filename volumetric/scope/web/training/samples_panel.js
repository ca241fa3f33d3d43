// Samples with targets and predictions, now and earlier, and the confusion of classes.
import { heatMap } from "../charts/heat_map.js";
import { colourTable } from "../charts/colours.js";
import { h, short } from "../elements.js";
import { runChoice } from "./choices.js";
import { samplePicture } from "./sample_picture.js";

const MOST_TABLE = 12;

/** Return {element, update(), destroy()}; see curvesPanel. */
export function samplesPanel(shared) {
  const runs = () => shared.runs().filter(run => run.samples && run.samples.step.data.length);
  let chosen = null,
    map = null,
    drawn = "";
  const pickRun = runChoice(runs, shared, () => update());
  const slider = h("input", {
    type: "range",
    min: 0,
    step: 1,
    "aria-label": "epoch",
    oninput() {
      chosen = Number(slider.value) === Number(slider.max) ? null : Number(slider.value);
      update();
    },
  });
  const when = h("output", { class: "number" }),
    summary = h("span", { class: "dim" });
  const controls = h(
    "div",
    { class: "training-controls" },
    pickRun.element,
    h("label", { class: "training-choice training-epoch" }, h("span", {}, "epoch"), slider, when),
    summary,
  );
  const grid = h("div", { class: "sample-grid", role: "list" }),
    side = h("div", { class: "panel sample-confusion" });
  const empty = h(
    "p",
    { class: "dim training-empty" },
    "No samples were recorded. Pass reporters=[watch] to train, or write samples = 24 under [history] in the file.",
  );
  const content = h("div", { class: "sample-content" }, grid, side),
    element = h("div", { class: "training-panel" }, controls, content, empty);

  const className = (of, id) => of.classes[id] ?? String(id);
  function update() {
    pickRun.update();
    const run = pickRun.run();
    for (const part of [controls, content]) part.hidden = !run;
    empty.hidden = Boolean(run);
    if (!run) return;
    const of = run.samples,
      epochs = of.step.data.length,
      many = of.targets.shape[0],
      width = of.targets.data.length / many;
    slider.max = epochs - 1;
    slider.disabled = epochs < 2;
    const e = Math.min(chosen ?? epochs - 1, epochs - 1);
    slider.value = e;
    when.textContent = `${short(of.epoch.data[e] + 1)}`;
    const state = JSON.stringify([run.name, e, epochs, of.step.data[e], shared.dark()]);
    if (state === drawn) return;
    drawn = state;
    const single = of.classed && width === 1 && of.predictions;
    const wrongAt = (at, i) => of.predictions.data[at * many + i] !== of.targets.data[i];
    const wrong = single ? Array.from({ length: many }, (_, i) => wrongAt(e, i)).filter(Boolean).length : null;
    summary.textContent = `${many} ${of.held_out ? "validation" : "training"} samples${wrong === null ? "" : `, ${wrong} of them wrong`}`;
    grid.replaceChildren(...Array.from({ length: many }, (_, i) => tile(of, e, i, { many, width, single, wrongAt, epochs })));
    grid.classList.toggle("sample-wide", of.pictures?.kind === "text");
    confusion(of, e);
  }
  function tile(of, e, i, { many, width, single, wrongAt, epochs }) {
    const picture = samplePicture(of.pictures, i);
    if (single) {
      const target = className(of, of.targets.data[i]),
        prediction = className(of, of.predictions.data[e * many + i]),
        wrong = wrongAt(e, i);
      const classes = of.outputs?.shape[2] ?? 0,
        at = (e * many + i) * classes;
      const sure = classes ? of.outputs.data[at + of.predictions.data[e * many + i]] : null;
      const history = h(
        "div",
        { class: "sample-history", title: "right (filled) or wrong (hollow), from the first epoch to the last" },
        Array.from({ length: epochs }, (_, k) => h("span", { class: `${wrongAt(k, i) ? "wrong" : ""} ${k === e ? "now" : ""}` })),
      );
      return h(
        "figure",
        { class: `sample ${wrong ? "is-wrong" : ""}`, role: "listitem" },
        picture,
        classes && classes <= 32 ? bars(of, at, classes, of.targets.data[i]) : null,
        h(
          "figcaption",
          {},
          h("span", { class: "sample-mark", "aria-label": wrong ? "wrong" : "right" }, wrong ? "✗" : "✓"),
          ` ${prediction}`,
          sure === null ? null : h("span", { class: "dim number" }, ` ${Math.round(100 * sure)} %`),
          wrong ? h("div", { class: "sample-target" }, `is ${target}`) : null,
        ),
        history,
      );
    }
    if (of.classed) {
      const isRight = k => of.predictions?.data[(e * many + i) * width + k] === of.targets.data[i * width + k];
      const right = Array.from({ length: width }, (_, k) => isRight(k)).filter(Boolean).length;
      const line = (label, text) => h("div", { class: "sample-line" }, h("span", { class: "dim" }, label), h("span", { class: "sample-text" }, text));
      const texts = of.targetTexts ? [line("target", of.targetTexts[i]), line("predicted", of.predictionTexts[e][i])] : null;
      return h(
        "figure",
        { class: "sample", role: "listitem" },
        picture,
        h("figcaption", {}, texts, h("span", { class: "dim" }, `${right} of ${width} right`)),
      );
    }
    const values = k => [of.targets.data[i * width + k], of.predictions?.data[(e * many + i) * width + k]];
    return h(
      "figure",
      { class: "sample", role: "listitem" },
      picture,
      h(
        "figcaption",
        {},
        h(
          "table",
          { class: "sample-values" },
          h("tr", {}, h("th", {}, "target"), h("th", {}, "output")),
          Array.from({ length: Math.min(width, 6) }, (_, k) =>
            h(
              "tr",
              {},
              values(k).map(value => h("td", { class: "number" }, short(value))),
            ),
          ),
        ),
        width > 6 ? h("span", { class: "dim" }, `and ${width - 6} more`) : null,
      ),
    );
  }
  function bars(of, at, classes, target) {
    const list = Array.from({ length: classes }, (_, k) => of.outputs.data[at + k]);
    return h(
      "div",
      {
        class: "sample-bars",
        role: "img",
        "aria-label": list
          .map((value, k) => `${className(of, k)} ${Math.round(100 * value)} %`)
          .filter((_, k) => list[k] > 0.05)
          .join(", "),
      },
      list.map((value, k) =>
        h("span", {
          class: k === target ? "target" : "",
          title: `${className(of, k)}: ${(100 * value).toFixed(1)} %`,
          style: `--of:${Math.max(0, Math.min(1, value))}`,
        }),
      ),
    );
  }
  function confusion(of, e) {
    side.hidden = !of.confusion;
    map?.destroy();
    map = null;
    if (!of.confusion) return;
    const classes = of.confusion.shape[1],
      counts = of.confusion.data.subarray(e * classes * classes, (e + 1) * classes * classes);
    const all = counts.reduce((a, b) => a + b, 0),
      right = Array.from({ length: classes }, (_, k) => counts[k * classes + k]).reduce((a, b) => a + b, 0);
    const head = [
      h("h2", {}, "Confusion"),
      h(
        "p",
        { class: "dim" },
        `${right.toLocaleString("en")} of ${all.toLocaleString("en")} samples right: ${((100 * right) / Math.max(1, all)).toFixed(1)} %. ` +
          "Rows are targets, columns predictions.",
      ),
    ];
    if (classes > MOST_TABLE) {
      const names = Array.from({ length: classes }, (_, k) => className(of, k));
      map = heatMap(
        { data: Array.from(counts, value => Math.log1p(value)), shape: [classes, classes], rowNames: names, columnNames: names },
        {
          label: "",
          tooltip: shared.tooltip,
          cell: Math.max(3, Math.floor(320 / classes)),
          describe: (row, column) => `${names[row]} predicted as ${names[column]}: ${counts[row * classes + column]}`,
        },
      );
      side.replaceChildren(...head, map.element);
      return;
    }
    const table = colourTable("viridis"),
      most = Math.max(...counts, 1);
    const cell = (row, column) => {
      const count = counts[row * classes + column],
        share = Math.log1p(count) / Math.log1p(most),
        at = 3 * Math.round(share * 255);
      const style = count ? `background:rgb(${table[at]},${table[at + 1]},${table[at + 2]});color:${share > 0.62 ? "#111" : "#fff"}` : "";
      return h(
        "td",
        {
          class: `number ${row === column ? "diagonal" : ""}`,
          style,
          title: `${className(of, row)} predicted as ${className(of, column)}: ${count}`,
        },
        count || "·",
      );
    };
    const names = Array.from({ length: classes }, (_, k) => className(of, k));
    side.replaceChildren(
      ...head,
      h(
        "div",
        { class: "sample-scroll" },
        h(
          "table",
          { class: "sample-table" },
          h(
            "tr",
            {},
            h("td", {}),
            names.map(name => h("th", { scope: "col", title: name }, name)),
          ),
          names.map((name, row) =>
            h(
              "tr",
              {},
              h("th", { scope: "row", title: name }, name),
              names.map((_, column) => cell(row, column)),
            ),
          ),
        ),
      ),
    );
  }
  update();
  return {
    element,
    update,
    destroy() {
      map?.destroy();
    },
  };
}
