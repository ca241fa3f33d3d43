// What pages of networks that learn share: samples of the visitor, updates from them, the loss as a curve, rate, forgetting,
// and the weights as a file.
import { curves } from "./curves.js";
import { h } from "./elements.js";
import { milliseconds } from "./latest_run.js";
import { saveFile } from "./save_file.js";

const RECENT = 20; // guesses of their share
const FRAME_MS = 50; // of updates, before the page is drawn again

/**
 * Return the samples, what adds to them and learns from them, and the card that shows it.
 * @param options batchOf(samples) → [inputs, targets] of an update; learnt() is called after updates, changed() when samples
 * have changed; measure: {name, value(), clear()}, a second curve; note: a text; buttons: further ones
 */
export async function lessons(model, app, { batchOf, learnt = async () => {}, changed = () => {}, measure = null, note, buttons = [] }) {
  const learner = await model.learner(), batch = Math.max(...learner.batches), samples = [];
  let learning = false, failed = false, busy = Promise.resolve();
  const chart = measure ? curves(["loss", measure.name], `Loss, and ${measure.name}`) : curves(["loss"], "Loss");
  const rate = h("input", { type: "number", step: "any", min: 0, value: Number(learner.rate.toPrecision(6)), "aria-label": "Learning rate" });
  const count = h("p", { class: "dim number" }), said = h("p", { class: "note", role: "status" });
  const counted = () => {
    count.textContent = `${samples.length.toLocaleString("en")} samples, ${learner.updates.toLocaleString("en")} updates`;
    run.disabled = !samples.length && !learning;
  };
  /** Make updates of samples drawn at random for the time of a frame, at most so many, and return how many. */
  const frame = async most => {
    const begun = performance.now();
    let updates = 0, sum = 0;
    do {
      const chosen = Array.from({ length: batch }, () => samples[Math.floor(Math.random() * samples.length)]);
      sum += await learner.update(...batchOf(chosen), { rate: Number.isFinite(rate.valueAsNumber) ? rate.valueAsNumber : learner.rate });
      updates++;
    } while (updates < most && samples.length && performance.now() - begun < FRAME_MS);
    app.speed(`${milliseconds((performance.now() - begun) / updates)} an update of ${batch} samples`);
    if (failed) app.clear();
    failed = false;
    counted();
    await learnt();
    chart.add(measure ? [sum / updates, measure.value()] : [sum / updates]);
    return updates;
  };
  /** Wait for what goes on, then do something; an error is shown and ends the learning. */
  const then = work => (busy = busy.then(work).catch(error => { stop(); failed = true; app.fail(error); }));
  const learn = most => then(async () => { for (let left = most; left > 0 && samples.length;) left -= await frame(left); });
  const start = async () => {
    learning = true;
    run.textContent = "Stop learning";
    while (learning && samples.length) await then(() => (samples.length ? frame(Infinity) : 0));
    stop();
  };
  const stop = () => { learning = false; run.textContent = "Keep learning"; counted(); };
  const run = h("button", { type: "button", class: "main", onclick: () => (learning ? stop() : start()) }, "Keep learning");
  const forget = () => {
    stop();
    measure?.clear();
    chart.clear();
    return then(async () => {
      await learner.reset();
      counted();
      said.textContent = "It has forgotten all; your samples are still here.";
      await learnt();
    });
  };
  const save = () => then(async () => saveFile("weights.safetensors", await learner.safetensors(), "application/octet-stream"));
  const edit = change => {
    change();
    said.textContent = "";
    counted();
    changed();
  };
  stop();
  return {
    samples, learn,
    /** Whether it learns until it is stopped. */
    get learning() { return learning; },
    /** Add samples. */
    add(...more) { edit(() => samples.push(...more)); },
    /** Keep the samples for which a test is true. */
    keep(test) { edit(() => samples.splice(0, samples.length, ...samples.filter(test))); },
    card: h("section", { class: "card wide", "aria-label": "Learning" }, h("h2", {}, "Learning"), chart.element,
      h("div", { class: "buttons" }, run, h("button", { type: "button", onclick: forget }, "Forget"), h("button", { type: "button", onclick: save }, "Save weights"), buttons,
        h("label", { class: "inline" }, "Rate", rate), count), said,
      h("p", { class: "note" }, note)),
  };
}

/** How many of the last guesses were right, as a measure with `add(was)`. */
export function lastGuesses() {
  const right = [];
  return {
    name: "right of the last guesses",
    value: () => (right.length ? right.reduce((a, b) => a + b, 0) / right.length : null),
    add(was) {
      right.push(Number(was));
      if (right.length > RECENT) right.shift();
    },
    clear() { right.length = 0; },
  };
}
