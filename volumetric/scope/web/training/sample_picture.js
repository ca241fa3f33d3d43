// One sample as a picture, a waveform, a text, or bars.
import { h, short } from "../elements.js";

const NS = "http://www.w3.org/2000/svg";

/** Return the element of sample i of `pictures` (see sample_pictures.py). */
export function samplePicture(pictures, i) {
  if (pictures?.kind === "image") return image(pictures, i);
  if (pictures?.kind === "sound") return wave(pictures, i);
  if (pictures?.kind === "text") return h("p", { class: "sample-text" }, pictures.texts[i]);
  return pictures ? numbers(pictures, i) : null;
}

function image({ pixels, size }, i) {
  const [, height, width, channels] = pixels.shape;
  const canvas = h("canvas", { width, height, class: "sample-image", role: "img", "aria-label": `picture of ${size[0]} × ${size[1]}` });
  const brush = canvas.getContext("2d"),
    picture = brush.createImageData(width, height),
    start = i * width * height * channels;
  for (let k = 0; k < width * height; k++) {
    const at = start + k * channels;
    for (let c = 0; c < 3; c++) picture.data[4 * k + c] = pixels.data[at + (channels >= 3 ? c : 0)];
    picture.data[4 * k + 3] = 255;
  }
  brush.putImageData(picture, 0, 0);
  return canvas;
}

function svg(width, height, label) {
  const element = document.createElementNS(NS, "svg");
  for (const [key, value] of Object.entries({
    viewBox: `0 0 ${width} ${height}`,
    preserveAspectRatio: "none",
    role: "img",
    "aria-label": label,
    class: "sample-drawing",
  }))
    element.setAttribute(key, value);
  return element;
}

function wave({ wave: values, total }, i) {
  const bins = values.shape[1],
    of = values.data.subarray(i * bins * 2, (i + 1) * bins * 2),
    most = Math.max(...of.map(Math.abs)) || 1;
  const element = svg(bins, 64, `sound of ${total} samples`),
    path = document.createElementNS(NS, "path");
  path.setAttribute(
    "d",
    Array.from({ length: bins }, (_, k) => `M${k + 0.5},${32 - (of[2 * k + 1] / most) * 30}V${32 - (of[2 * k] / most) * 30 + 0.5}`).join(""),
  );
  element.append(path);
  return element;
}

function numbers({ numbers: values, total }, i) {
  const many = values.shape[1],
    of = values.data.subarray(i * many, (i + 1) * many);
  const most = Math.max(...of.map(value => (Number.isFinite(value) ? Math.abs(value) : 0))) || 1;
  const element = svg(many * 10, 48, `${total} numbers: ${Array.from(of.slice(0, 8), short).join(", ")}`);
  for (let k = 0; k < many; k++) {
    const bar = document.createElementNS(NS, "rect"),
      high = Number.isFinite(of[k]) ? (Math.abs(of[k]) / most) * 22 : 22;
    for (const [key, value] of Object.entries({ x: k * 10 + 1.5, width: 7, y: of[k] < 0 ? 24 : 24 - high, height: Math.max(0.6, high) }))
      bar.setAttribute(key, value);
    if (!Number.isFinite(of[k])) bar.setAttribute("class", "odd");
    const title = document.createElementNS(NS, "title");
    title.textContent = short(of[k]);
    bar.append(title);
    element.append(bar);
  }
  return element;
}
