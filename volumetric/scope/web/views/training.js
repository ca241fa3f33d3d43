// The view of training runs: curves, layers, weights, samples and settings; live while a run goes on.
import { h, short } from "../elements.js";
import { messageArray } from "../document.js";
import { AXIS_NAMES } from "../training/curves.js";
import { choice } from "../training/choices.js";
import { curvesPanel } from "../training/curves_panel.js";
import { layersPanel } from "../training/layers_panel.js";
import { weightsPanel } from "../training/weights_panel.js";
import { samplesPanel } from "../training/samples_panel.js";
import { runsPanel } from "../training/runs_panel.js";
import { changeRun, readRuns, runColour } from "../training/run_data.js";

const PANELS = {
  curves: ["Curves", curvesPanel],
  layers: ["Layers", layersPanel],
  weights: ["Weights", weightsPanel],
  samples: ["Samples", samplesPanel],
  runs: ["Runs", runsPanel],
};

/** Show a view of training; see main.js. */
export async function mount(element, view, app, tools) {
  const { state } = app;
  let runs = [],
    revision = -1,
    queue = Promise.resolve(),
    frame = 0,
    panel = null,
    gone = false;
  const hidden = new Set((state.get("hidden") ?? "").split("\n").filter(Boolean));
  const options = {
    axis: state.get("axis") in AXIS_NAMES ? state.get("axis") : "step",
    smoothing: Math.min(0.999, Math.max(0, Number(state.get("smoothing", 0.6)) || 0)),
    log: state.get("log") === "1",
  };
  const shared = {
    options,
    state,
    tooltip: app.tooltip,
    announce: app.announce,
    dark: () => app.dark.value,
    everyRun: () => runs,
    runs: () => runs.filter(run => !hidden.has(run.name)),
    colour: run => runColour(runs.indexOf(run), app.dark.value),
  };

  const smoothing = h("input", {
    type: "range",
    min: 0,
    max: 100,
    value: Math.round(options.smoothing * 100),
    "aria-label": "smoothing",
    title: "Weight of the past in the moving average",
    oninput() {
      set("smoothing", Math.min(0.99, Number(smoothing.value) / 100) + (Number(smoothing.value) > 99 ? 0.009 : 0));
    },
  });
  const amount = h("output", { class: "number" });
  const log = h("input", {
    type: "checkbox",
    checked: options.log,
    onchange() {
      set("log", log.checked);
    },
  });
  tools.append(
    choice("over", AXIS_NAMES, options.axis, value => set("axis", value)),
    h("label", { class: "training-choice" }, h("span", {}, "smoothing"), smoothing, amount),
    h("label", { class: "training-choice" }, log, h("span", {}, "log scale")),
  );
  function set(name, value) {
    options[name] = value;
    state.set(name, name === "log" ? (value ? "1" : "") : value);
    amount.textContent = options.smoothing.toFixed(options.smoothing > 0.99 ? 3 : 2);
    panel?.update();
  }

  const list = h("ul", { class: "training-runs", "aria-label": "Runs" }),
    body = h("div", { class: "training-body" });
  const sections = h(
    "div",
    { class: "tabs training-sections", role: "tablist", "aria-label": "Parts" },
    Object.entries(PANELS).map(([key, [label]]) =>
      h(
        "button",
        {
          type: "button",
          role: "tab",
          "data-panel": key,
          onclick: () => open(key),
        },
        label,
      ),
    ),
  );
  sections.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.stopPropagation();
    const all = [...sections.children],
      next = all[(all.indexOf(document.activeElement) + step + all.length) % all.length];
    next.focus();
    next.click();
  });
  element.append(h("div", { class: "training" }, h("aside", { class: "training-side" }, list), h("div", { class: "training-main" }, sections, body)));

  function open(key) {
    panel?.destroy();
    state.set("part", key);
    for (const tab of sections.children) {
      const chosen = tab.dataset.panel === key;
      tab.setAttribute("aria-selected", chosen);
      tab.tabIndex = chosen ? 0 : -1;
    }
    panel = PANELS[key][1](shared);
    body.replaceChildren(panel.element);
    body.scrollTop = 0;
    panel.update();
  }
  function drawList() {
    list.replaceChildren(
      ...runs.map(run => {
        const show = !hidden.has(run.name),
          lossOf = run.steps.values.loss ?? run.epochs.values.loss,
          held = run.epochs.values.validation_loss;
        const last = of => of?.mean.findLast(Number.isFinite),
          diverged = run.marks.some(mark => mark.name === "diverged");
        const steps = run.steps.step.length ? run.steps.step : run.epochs.step;
        const facts = [
          steps.length ? `${short(steps[steps.length - 1])} ${steps[steps.length - 1] === 1 ? "update" : "updates"}` : null,
          last(lossOf) === undefined ? null : `loss ${short(last(lossOf))}`,
          last(held) === undefined ? null : `validation ${short(last(held))}`,
        ]
          .filter(Boolean)
          .join(" · ");
        return h(
          "li",
          {},
          h(
            "button",
            {
              type: "button",
              class: "training-run",
              "aria-pressed": String(show),
              title: `${show ? "Hide" : "Show"} ${run.name}`,
              onclick() {
                if (!hidden.delete(run.name)) hidden.add(run.name);
                state.set("hidden", [...hidden].join("\n"));
                const at = runs.indexOf(run);
                drawList();
                list.children[at].firstChild.focus();
                panel.update();
              },
            },
            h("span", { class: "swatch", style: `background:${shared.colour(run)}` }),
            h("span", { class: "training-name" }, run.name),
            h(
              "span",
              { class: `training-state ${diverged ? "bad" : run.running ? "live" : ""}` },
              diverged ? "⚠ diverged" : run.running ? "● live" : "",
            ),
            h("span", { class: "training-facts dim number" }, facts),
          ),
          run.notes.map(text => h("p", { class: "training-note" }, text)),
        );
      }),
    );
  }
  function redraw() {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (gone) return;
      drawList();
      panel?.update();
    });
  }

  const array = reference => ("$base64" in reference ? Promise.resolve(messageArray(reference)) : app.doc.array(reference));
  async function refresh() {
    const answer = await app.live.act(view.name, { do: "state" });
    runs = (await readRuns(answer.data, array)).runs;
    revision = answer.revision;
  }
  async function receive(message) {
    if (gone || message.revision <= revision) return;
    if (message.revision > revision + 1 || message.runs.some(entry => entry.restarted)) await refresh();
    else {
      revision = message.revision;
      for (const entry of message.runs) await changeRun(runs[entry.run], entry, array);
    }
    const ended = message.runs.filter(entry => entry.running === false).map(entry => `${runs[entry.run].name}: ${entry.status}`);
    if (ended.length) app.announce(ended.join(", "));
    redraw();
  }
  runs = (await readRuns(view.data, array)).runs;
  const unsubscribe = app.live?.on(view.name, message => {
    queue = queue.then(() => receive(message)).catch(error => app.notify(error.message));
  });
  if (app.live) {
    queue = queue
      .then(refresh)
      .then(redraw)
      .catch(error => app.notify(error.message));
    await queue;
  }
  const repaint = app.dark.subscribe(() => {
    drawList();
    panel.update();
  });
  drawList();
  set("smoothing", options.smoothing);
  open(state.get("part") in PANELS ? state.get("part") : "curves");
  return {
    destroy() {
      gone = true;
      unsubscribe?.();
      repaint();
      cancelAnimationFrame(frame);
      panel?.destroy();
    },
    key(event) {
      const at = Number(event.key) - 1,
        keys = Object.keys(PANELS);
      if (keys[at]) {
        open(keys[at]);
        return true;
      }
      if (event.key === "l") {
        log.click();
        return true;
      }
      return false;
    },
    exports: () => {
      const canvas = body.querySelector("canvas"),
        svg = body.querySelector(".chart svg");
      return { ...(canvas ? { canvas } : {}), ...(svg ? { svg } : {}) };
    },
  };
}
