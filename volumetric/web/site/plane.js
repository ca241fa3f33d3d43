// The plane of two inputs: what comes out of a network over it as a field of colour, with samples and a cross on it.
import { areClasses, meaning, namesOf } from "./answers.js";
import { channels, drawn, series } from "./canvas.js";
import { h } from "./elements.js";
import { inputsOf, widthOf } from "./fields.js";

const SIDE = 32;
/** Points of the plane whose outputs `fill` computes. */
export const POINTS = SIDE * SIDE;

/**
 * Return {canvas, fill, redraw}.
 * @param model a network
 * @param fields its two inputs
 * @param options samples() → [{x: [a, b], y: class or number}]; cross() → [a, b]; point(pair, event) is called where the
 * pointer is pressed or moved while pressed; step(pair, event) where an arrow key leads; keys: what keys do, as a sentence
 */
export function plane(model, [x, y], { samples, cross, point, step, keys }) {
  const network = model.info, port = Object.keys(network.outputs)[0];
  const width = widthOf(network.outputs[port]), classes = areClasses(network, port), names = namesOf(network, port);
  const place = (value, { low, high }) => low + value * (high - low);
  const axis = field => Array.from({ length: SIDE }, (_, i) => place((i + .5) / SIDE, field));
  const points = inputsOf(network, [x, y], axis(y).reverse().flatMap(b => axis(x).map(a => [a, b])));
  let values = null, low = 0, high = 1;
  const canvas = h("canvas", { class: "field-canvas", tabindex: 0, role: "application", "aria-label": `${names.join(", ")} over ${x.name} and ${y.name}. ${keys}` });

  const redraw = drawn(canvas, (context, w, hgt, colour) => {
    if (values) {
      const image = new ImageData(SIDE, SIDE), tones = classes ? names.map((_, i) => channels(colour(series(i)))) : ["--low", "--middle", "--high"].map(name => channels(colour(name)));
      for (let i = 0; i < POINTS; i++) {
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
    for (const sample of samples()) {
      const [sx, sy] = at(...sample.x);
      context.beginPath();
      context.arc(Math.min(w - 10, Math.max(10, sx)), Math.min(hgt - 10, Math.max(10, sy)), 7, 0, 2 * Math.PI);
      context.fillStyle = colour(classes ? series(sample.y) : sample.y > (low + high) / 2 ? "--high" : "--low");
      context.strokeStyle = colour("--back");
      context.fill();
      context.stroke();
    }
    const [cx, cy] = at(...cross());
    context.strokeStyle = colour("--front");
    context.beginPath();
    context.moveTo(cx - 10, cy); context.lineTo(cx + 10, cy); context.moveTo(cx, cy - 10); context.lineTo(cx, cy + 10);
    context.stroke();
  });

  const pointed = event => {
    const box = canvas.getBoundingClientRect();
    point([place((event.clientX - box.x) / box.width, x), place(1 - (event.clientY - box.y) / box.height, y)], event);
  };
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); pointed(event); });
  canvas.addEventListener("pointermove", event => { if (event.buttons) pointed(event); });
  canvas.addEventListener("keydown", event => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!way) return;
    event.preventDefault();
    step([x, y].map((field, i) => Math.min(field.high, Math.max(field.low, cross()[i] + way[i] * (field.high - field.low) / 20))), event);
  });
  return {
    canvas,
    redraw,
    /** Compute the plane, and draw it. */
    async fill() {
      const all = (await model.run(points))[port];
      values = Array.from({ length: POINTS }, (_, i) => meaning(network, port, all.subarray(i * width, (i + 1) * width))).flat();
      low = high = values[0];
      for (let i = 0; i < values.length; i += width) { low = Math.min(low, values[i]); high = Math.max(high, values[i]); }
      canvas.dataset.filled = "true";
      redraw();
    },
  };
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
