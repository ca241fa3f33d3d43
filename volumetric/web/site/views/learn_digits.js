// Draw, say what it is, and the network learns it: what it guessed before it was told, and its loss.
import { answers, namesOf } from "../answers.js";
import { curves } from "../curves.js";
import { h } from "../elements.js";
import { latestRun, milliseconds } from "../latest_run.js";
import { arranged, pixelPad } from "../pixel_pad.js";
import { saveFile } from "../save_file.js";

const UPDATES = 8; // after each new sample
const RECENT = 20; // guesses of the accuracy
const MOST_SHIFT = 1; // pixels by which samples are moved when they are learnt

export async function show(stage, model, app) {
  const network = model.info, port = Object.keys(network.inputs)[0], output = Object.keys(network.outputs)[0];
  const { height, width, channels = 1 } = network.ui?.image ?? {}, image = { low: 0, high: 1, first: "channels", ...network.ui?.image, channels };
  if (!(height > 0 && width > 0)) throw new Error("The export says nothing of an image.");
  const learner = await model.learner(), answer = answers(network), names = namesOf(network, output);
  const batch = Math.max(...learner.batches), samples = [], right = [];
  let guess = null, learning = false, busy = Promise.resolve();

  const ask = latestRun(model, outputs => {
    const scores = outputs[output].subarray(0, names.length);
    guess = scores.indexOf(Math.max(...scores));
    answer.show({ [output]: scores });
  }, app.fail);
  const seen = () => ask({ [port]: arranged(pad.pixels, image) });
  const pad = pixelPad({ height, width, channels }, seen);
  const said = h("p", { class: "note", role: "status" }, "Draw something, then press what it is.");
  const count = h("p", { class: "dim number" });
  const chart = curves(["loss", "right of the last guesses"], "Loss and accuracy");
  const rate = h("input", { type: "number", step: "any", min: 0, value: Number(learner.rate.toPrecision(6)), "aria-label": "Learning rate" });

  /** Make updates from samples drawn at random, each a little moved. */
  const learn = updates => (busy = busy.then(async () => {
    if (!samples.length) return;
    const share = right.length ? right.slice(-RECENT).reduce((a, b) => a + b, 0) / Math.min(RECENT, right.length) : null;
    for (let i = 0; i < updates; i++) {
      const chosen = Array.from({ length: batch }, () => samples[Math.floor(Math.random() * samples.length)]);
      const x = new Float32Array(batch * pad.pixels.length), begun = performance.now();
      chosen.forEach((sample, s) => x.set(arranged(moved(sample.pixels, height, width, channels), image), s * pad.pixels.length));
      const loss = await learner.update(x, Int32Array.from(chosen, sample => sample.label), { rate: rate.valueAsNumber || learner.rate });
      app.speed(`${milliseconds(performance.now() - begun)} an update of ${batch} samples`);
      chart.add([loss, share]);
    }
    count.textContent = `${samples.length} samples, ${learner.updates} updates`;
    app.clear();
    await seen();
  }).catch(error => { stop(); app.fail(error); }));
  const tell = label => {
    if (!pad.pixels.some(Boolean)) { said.textContent = "Draw something first."; return; }
    right.push(Number(guess === label));
    samples.push({ pixels: pad.pixels.slice(), label });
    said.textContent = guess === label ? `It had seen ${names[label]}.` : `It learns that this is ${names[label]}, not ${names[guess] ?? "anything"}.`;
    pad.clear();
    void learn(UPDATES);
  };
  const run = h("button", { type: "button", onclick: () => (learning ? stop() : start()) }, "Keep learning");
  const start = async () => {
    learning = true;
    run.textContent = "Stop learning";
    while (learning && samples.length) await learn(1);
    stop();
  };
  const stop = () => { learning = false; run.textContent = "Keep learning"; };
  const reset = () => { stop(); busy = busy.then(() => learner.reset()).then(seen).catch(app.fail); right.length = 0; chart.clear(); said.textContent = "It has forgotten all; your samples are still here."; };
  const save = async () => saveFile("weights.safetensors", await learner.safetensors(), "application/octet-stream");
  const labels = names.map((name, label) => h("button", { type: "button", "data-label": label, onclick: () => tell(label) }, name));
  addEventListener("keydown", event => {
    const label = names.indexOf(event.key);
    if (label >= 0 && !event.target.closest?.("input, textarea, select")) tell(label);
  });
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Image" }, h("h2", {}, "Draw"), pad.canvas, said,
      h("div", { class: "buttons", role: "group", "aria-label": "This is" }, labels), h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => pad.clear() }, "Clear"))),
    h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "What it sees"), answer.element),
    h("section", { class: "card wide", "aria-label": "Learning" }, h("h2", {}, "Learning"), chart.element,
      h("div", { class: "buttons" }, run, h("button", { type: "button", onclick: reset }, "Forget"), h("button", { type: "button", onclick: () => save().catch(app.fail) }, "Save weights"),
        h("label", { class: "inline" }, "Rate", rate), count),
      h("p", { class: "note" }, `It makes ${UPDATES} updates after each of your samples, on your GPU. Guesses count before it is told.`)));
  pad.paint();
  await seen();
}

/** Pixels moved by up to a pixel in each direction. */
function moved(pixels, height, width, channels) {
  const [dy, dx] = [0, 0].map(() => Math.floor(Math.random() * (2 * MOST_SHIFT + 1)) - MOST_SHIFT), out = new Float32Array(pixels.length);
  for (let r = Math.max(0, dy); r < Math.min(height, height + dy); r++) {
    for (let c = Math.max(0, dx); c < Math.min(width, width + dx); c++) {
      for (let k = 0; k < channels; k++) out[(r * width + c) * channels + k] = pixels[((r - dy) * width + c - dx) * channels + k];
    }
  }
  return out;
}
