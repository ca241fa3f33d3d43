// The runs in a table: best values, the settings in which they differ, and what happened.
import { h, short } from "../elements.js";

const BEST = [
  ["validation loss", run => run.epochs.values.validation_loss, Math.min],
  ["training loss", run => run.epochs.values.loss ?? run.steps.values.loss, Math.min],
  ["accuracy", run => run.epochs.values.accuracy, Math.max],
  ["metric", run => run.epochs.values.metric, null],
];

const hasDiverged = run => run.marks.some(mark => mark.name === "diverged");

/** Return {value, at} of the best finite value, or of the last one without `better`. */
function bestOf(values, better, epochs) {
  let best = null;
  values?.mean.forEach((value, i) => {
    if (Number.isFinite(value) && (!best || !better || better(value, best.value) === value)) best = { value, at: epochs?.[i] };
  });
  return best;
}

/** Return {element, update(), destroy()}; see curvesPanel. */
export function runsPanel(shared) {
  const element = h("div", { class: "training-panel" });
  let all = false;

  function update() {
    const runs = shared.everyRun(),
      names = [...new Set(runs.flatMap(run => Object.keys(run.settings)))];
    const known = runs.filter(run => Object.keys(run.settings).length); // nothing is known of others
    const differ = names.filter(name => new Set(known.map(run => run.settings[name] ?? "")).size > 1);
    const listed = all || runs.length === 1 ? names : differ;
    const head = h(
      "tr",
      {},
      h("td", {}),
      runs.map(run => h("th", { scope: "col" }, h("span", { class: "swatch", style: `background:${shared.colour(run)}` }), " ", run.name)),
    );
    const best = BEST.map(([label, of, better]) => {
      const bests = runs.map(run => bestOf(of(run), better, run.epochs.epoch)),
        values = bests.filter(Boolean).map(one => one.value);
      if (!values.length) return null;
      const top = better && runs.length > 1 ? better(...values) : null;
      return h(
        "tr",
        {},
        h("th", { scope: "row" }, better ? `best ${label}` : `last ${label}`),
        bests.map(one =>
          h(
            "td",
            { class: `number ${one && one.value === top ? "top" : ""}` },
            one ? (label === "accuracy" ? `${(100 * one.value).toFixed(2)} %` : short(one.value)) : "–",
            one?.at !== undefined && better ? h("span", { class: "dim" }, `  epoch ${short(one.at)}`) : null,
            one && one.value === top ? h("span", { class: "training-top", title: "best of the runs" }, " ★") : null,
          ),
        ),
      );
    });
    const count = (label, value) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, label),
        runs.map(run => h("td", { class: "number" }, value(run))),
      );
    const last = of => (of.length ? short(of[of.length - 1]) : "–");
    const state = h(
      "tr",
      {},
      h("th", { scope: "row" }, "state"),
      runs.map(run => h("td", { class: hasDiverged(run) ? "bad" : "" }, run.running ? "goes on" : run.status || "–")),
    );
    const settings = listed.map(name =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, name),
        runs.map(run => h("td", { class: differ.includes(name) ? "differs" : "" }, run.settings[name] ?? h("span", { class: "dim" }, "–"))),
      ),
    );
    const note = !names.length
      ? "The settings of these runs are not known: checkpoints and watches hold them."
      : runs.length > 1 && !differ.length
        ? "The runs have the same settings."
        : "";
    const events = runs.flatMap(run => [
      ...run.marks.map(mark => h("li", { class: mark.name === "diverged" ? "bad" : "" }, runs.length > 1 ? `${run.name}: ${mark.text}` : mark.text)),
      ...run.notes.map(text => h("li", {}, runs.length > 1 ? `${run.name}: ${text}` : text)),
    ]);
    element.replaceChildren(
      h(
        "section",
        { class: "panel training-scroll" },
        h(
          "table",
          { class: "training-table" },
          head,
          state,
          best,
          count("updates", run => last(run.steps.step.length ? run.steps.step : run.epochs.step)),
          count("seconds", run => last(run.steps.seconds)),
        ),
      ),
      h(
        "section",
        { class: "panel training-scroll" },
        h("h2", {}, runs.length > 1 ? (all ? "Settings" : "Settings that differ") : "Settings"),
        note ? h("p", { class: "dim" }, note) : null,
        listed.length
          ? h(
              "table",
              { class: "training-table" },
              runs.length > 1
                ? h(
                    "tr",
                    {},
                    h("td", {}),
                    runs.map(run => h("th", { scope: "col" }, run.name)),
                  )
                : null,
              settings,
            )
          : null,
        runs.length > 1 && names.length > differ.length
          ? h(
              "button",
              {
                type: "button",
                onclick() {
                  all = !all;
                  update();
                },
              },
              all ? "Only those that differ" : `All ${names.length} settings`,
            )
          : null,
      ),
      events.length ? h("section", { class: "panel" }, h("h2", {}, "What happened"), h("ul", { class: "training-events" }, events)) : "",
    );
  }
  update();
  return { element, update, destroy() {} };
}
