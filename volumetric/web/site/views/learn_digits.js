// Draw, say what it is, and the network learns it: what it guessed before it was told, and its loss.
import { answers, namesOf } from "../answers.js";
import { h } from "../elements.js";
import { latestRun } from "../latest_run.js";
import { lastGuesses, lessons } from "../lessons.js";
import { arranged, pixelPad } from "../pixel_pad.js";

const UPDATES = 8; // after each new sample
const MOST_SHIFT = 1; // pixels by which samples are moved when they are learnt

export async function show(stage, model, app) {
  const network = model.info, port = Object.keys(network.inputs)[0], output = Object.keys(network.outputs)[0];
  const { height, width, channels = 1 } = network.ui?.image ?? {}, image = { low: 0, high: 1, first: "channels", ...network.ui?.image, channels };
  if (!(height > 0 && width > 0)) throw new Error("The export says nothing of an image.");
  const answer = answers(network), names = namesOf(network, output), guesses = lastGuesses();
  let guess = null;

  const ask = latestRun(model, outputs => {
    const scores = outputs[output].subarray(0, names.length);
    guess = scores.indexOf(Math.max(...scores));
    answer.show({ [output]: scores });
  }, app.fail);
  const seen = () => ask({ [port]: arranged(pad.pixels, image) });
  const pad = pixelPad({ height, width, channels }, seen), size = pad.pixels.length;
  const said = h("p", { class: "note", role: "status" }, "Draw something, then press what it is.");
  const lesson = await lessons(model, app, {
    measure: guesses, learnt: seen,
    batchOf(samples) {
      const x = new Float32Array(samples.length * size);
      samples.forEach((sample, s) => x.set(arranged(moved(sample.pixels, height, width, channels), image), s * size));
      return [x, Int32Array.from(samples, sample => sample.label)];
    },
    note: `It makes ${UPDATES} updates after each of your samples, on your GPU. Guesses count before it is told.`,
  });
  const tell = label => {
    if (!pad.pixels.some(Boolean)) { said.textContent = "Draw something first."; return; }
    guesses.add(guess === label);
    lesson.add({ pixels: pad.pixels.slice(), label });
    said.textContent = guess === label ? `It had seen ${names[label]}.` : `It learns that this is ${names[label]}, not ${names[guess] ?? "anything"}.`;
    pad.clear();
    void lesson.learn(UPDATES);
  };
  const labels = names.map((name, label) => h("button", { type: "button", "data-label": label, onclick: () => tell(label) }, name));
  addEventListener("keydown", event => {
    const label = names.indexOf(event.key);
    if (label >= 0 && !event.target.closest?.("input, textarea, select")) tell(label);
  });
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Image" }, h("h2", {}, "Draw"), pad.canvas, said,
      h("div", { class: "buttons", role: "group", "aria-label": "This is" }, labels), h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => pad.clear() }, "Clear"))),
    h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "What it sees"), answer.element),
    lesson.card);
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
