// Two numbers in: what comes out over the whole plane, as a field of colour with the samples on it.
import { answers, areClasses, meaning, namesOf } from "../answers.js";
import { channels, drawn, series } from "../canvas.js";
import { h } from "../elements.js";
import { fieldsOf, inputsOf, sliders, widthOf } from "../fields.js";
import { genomePicture } from "../genome_picture.js";
import { latestRun, milliseconds } from "../latest_run.js";
import { sampleCheck, samplesOf } from "../sample_check.js";

const SIDE = 32;

export async function show(stage, model, app) {
  const network = model.info, fields = fieldsOf(network), [x, y] = fields, port = Object.keys(network.outputs)[0];
  if (fields.length !== 2) throw new Error(`A plane has two inputs; this network has ${fields.length}.`);
  const width = widthOf(network.outputs[port]), classes = areClasses(network, port), names = namesOf(network, port);
  const answer = answers(network);
  const samples = samplesOf(network, fields), verified = sampleCheck(model, fields, samples), picture = genomePicture(network.ui?.genome);
  const near = pairs => inputsOf(network, [x, y], pairs);
  const place = (value, { low, high }) => low + value * (high - low);

  let values = null, low = 0, high = 1;
  const canvas = h("canvas", { class: "field-canvas", tabindex: 0, role: "application", "aria-label": `${names.join(", ")} over ${x.name} and ${y.name}. Arrow keys move the point.` });
  const controls = sliders([x, y], at => { ask(near([at])); redraw(); });
  const redraw = drawn(canvas, (context, w, hgt, colour) => {
    if (values) {
      const image = new ImageData(SIDE, SIDE), tones = classes ? names.map((_, i) => channels(colour(series(i)))) : ["--low", "--middle", "--high"].map(name => channels(colour(name)));
      for (let i = 0; i < SIDE * SIDE; i++) {
        const tone = classes ? blend(values.slice(i * width, (i + 1) * width), tones) : ramp((values[i * width] - low) / (high - low || 1), tones);
        image.data.set([...tone, 255], 4 * i);
      }
      const small = new OffscreenCanvas(SIDE, SIDE);
      small.getContext("2d").putImageData(image, 0, 0);
      context.imageSmoothingEnabled = true;
      context.drawImage(small, 0, 0, w, hgt);
    }
    const at = (px, py) => [(px - x.low) / (x.high - x.low) * w, hgt - (py - y.low) / (y.high - y.low) * hgt];
    context.lineWidth = 2;
    for (const sample of samples) {
      const [sx, sy] = at(...sample.x);
      context.beginPath();
      context.arc(Math.min(w - 10, Math.max(10, sx)), Math.min(hgt - 10, Math.max(10, sy)), 7, 0, 2 * Math.PI);
      context.fillStyle = colour(classes ? series(sample.y) : sample.y > (low + high) / 2 ? "--high" : "--low");
      context.strokeStyle = colour("--back");
      context.fill();
      context.stroke();
    }
    const [cx, cy] = at(...controls.values);
    context.strokeStyle = colour("--front");
    context.beginPath();
    context.moveTo(cx - 10, cy); context.lineTo(cx + 10, cy); context.moveTo(cx, cy - 10); context.lineTo(cx, cy + 10);
    context.stroke();
  });
  const ask = latestRun(model, (outputs, time) => {
    app.clear();
    answer.show(Object.fromEntries(Object.entries(outputs).map(([name, all]) => [name, all.subarray(0, widthOf(network.outputs[name]))])));
    app.speed(`${milliseconds(time)} a call`);
  }, app.fail);

  const point = event => {
    const box = canvas.getBoundingClientRect();
    controls.set([place((event.clientX - box.x) / box.width, x), place(1 - (event.clientY - box.y) / box.height, y)]);
  };
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); point(event); });
  canvas.addEventListener("pointermove", event => { if (event.buttons) point(event); });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    controls.set([x, y].map((field, i) => Math.min(field.high, Math.max(field.low, controls.values[i] + step[i] * (field.high - field.low) / 20))));
  });
  const caption = h("p", { class: "note" }, `Across: ${x.name}. Up: ${y.name}. Point, drag, or use the arrow keys.`), busy = h("p", { class: "busy dim" }, "Computing the plane…");
  stage.replaceChildren(
    h("section", { class: "card", "aria-label": "Plane" }, h("div", { class: "plane" }, canvas, busy), caption, controls.element),
    h("div", { class: "column" },
      h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "Outputs"), answer.element),
      verified.element,
      picture ? h("section", { class: "card", "aria-label": "Genome" }, h("h2", {}, "Genome"), picture) : null));

  await ask(near([controls.values]));
  fill();

  /** Compute samples and plane; the page can be used meanwhile. */
  async function fill() {
    try {
      await verified.check();
      const axis = field => Array.from({ length: SIDE }, (_, i) => place((i + .5) / SIDE, field));
      const begun = performance.now();
      const all = (await model.run(near(axis(y).reverse().flatMap(b => axis(x).map(a => [a, b])))))[port];
      values = Array.from({ length: SIDE * SIDE }, (_, i) => meaning(network, port, all.subarray(i * width, (i + 1) * width))).flat();
      low = high = values[0];
      for (let i = 0; i < values.length; i += width) { low = Math.min(low, values[i]); high = Math.max(high, values[i]); }
      app.speed(`${SIDE * SIDE} points in ${milliseconds(performance.now() - begun)}`);
      canvas.dataset.filled = "true";
    } catch (error) {
      app.fail(error);
    }
    busy.remove();
    redraw();
  }
}

const mix = (a, b, share) => a.map((part, i) => part + (b[i] - part) * share);

/** The colour of a number from 0 to 1 between three. */
function ramp(value, [low, middle, high]) {
  return value < .5 ? mix(low, middle, 2 * value) : mix(middle, high, 2 * value - 1);
}

/** The colours of classes, mixed by their probabilities. */
function blend(shares, tones) {
  const sum = shares.reduce((a, b) => a + Math.max(0, b), 0) || 1;
  return [0, 1, 2].map(part => shares.reduce((all, share, i) => all + Math.max(0, share) / sum * tones[i][part], 0));
}
