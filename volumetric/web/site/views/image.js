// An image in: drawn by hand, dropped or opened; what the network sees in it, while it is drawn.
import { answers } from "../answers.js";
import { h } from "../elements.js";
import { widthOf } from "../fields.js";
import { latestRun, milliseconds } from "../latest_run.js";

export async function show(stage, model, app) {
  const network = model.info, port = Object.keys(network.inputs)[0];
  const { height, width, channels = 1, low = 0, high = 1, first = "channels" } = network.ui?.image ?? {};
  const total = widthOf(network.inputs[port]);
  if (!(height > 0 && width > 0) || height * width * channels !== total) throw new Error(`The export says nothing of an image of ${total} numbers.`);
  const pixels = new Float32Array(height * width * channels); // height × width × channels, 0 is the ground and 1 the ink

  const canvas = h("canvas", {
    class: "pixels", width, height, tabindex: 0, role: "application",
    "aria-label": `Image of ${width} × ${height} pixels. Arrow keys move the pen, space draws, delete clears.`,
  });
  const context = canvas.getContext("2d"), said = h("p", { class: "note", role: "status" }, "Draw here, or drop an image.");
  const answer = answers(network);
  let pen = [Math.floor(height / 2), Math.floor(width / 2)], focused = false, last = null;

  const paint = () => {
    const image = context.createImageData(width, height);
    for (let i = 0; i < height * width; i++) {
      for (let c = 0; c < 3; c++) image.data[4 * i + c] = 255 * pixels[i * channels + (channels === 1 ? 0 : c)];
      image.data[4 * i + 3] = 255;
    }
    if (focused) {
      const at = 4 * (pen[0] * width + pen[1]);
      image.data[at] = 90; image.data[at + 1] = 150; image.data[at + 2] = 255;
    }
    context.putImageData(image, 0, 0);
  };
  const ask = latestRun(model, (outputs, time) => {
    app.clear();
    answer.show(outputs);
    app.speed(`${milliseconds(time)} a call`);
  }, app.fail);
  const changed = () => { paint(); return ask({ [port]: arranged(pixels, { height, width, channels, low, high, first }) }); };

  /** Draw a round spot; strokes of small images are thinner. */
  const spot = (y, x) => {
    const radius = Math.max(.6, Math.min(height, width) / 22);
    for (let r = 0; r < height; r++) {
      for (let c = 0; c < width; c++) {
        const ink = Math.min(1, Math.max(0, radius + .6 - Math.hypot(r + .5 - y, c + .5 - x)));
        for (let k = 0; k < channels; k++) pixels[(r * width + c) * channels + k] = Math.max(pixels[(r * width + c) * channels + k], ink);
      }
    }
  };
  const stroke = event => {
    const box = canvas.getBoundingClientRect();
    const to = [(event.clientY - box.y) / box.height * height, (event.clientX - box.x) / box.width * width];
    const from = last ?? to, steps = Math.max(1, Math.ceil(2 * Math.hypot(to[0] - from[0], to[1] - from[1])));
    for (let i = 1; i <= steps; i++) spot(from[0] + (to[0] - from[0]) * i / steps, from[1] + (to[1] - from[1]) * i / steps);
    last = to;
    changed();
  };
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); last = null; stroke(event); });
  canvas.addEventListener("pointermove", event => { if (event.buttons & 1) stroke(event); });
  canvas.addEventListener("focus", () => { focused = canvas.matches(":focus-visible"); paint(); });
  canvas.addEventListener("blur", () => { focused = false; paint(); });
  const clear = () => { pixels.fill(0); said.textContent = "The image is empty."; changed(); };
  canvas.addEventListener("keydown", event => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step) pen = [Math.min(height - 1, Math.max(0, pen[0] + step[0])), Math.min(width - 1, Math.max(0, pen[1] + step[1]))];
    else if (event.key === " ") spot(pen[0] + .5, pen[1] + .5);
    else if (event.key === "Delete" || event.key === "Backspace") clear();
    else return;
    event.preventDefault();
    focused = true;
    changed();
  });

  /** Take an image file: scaled into the canvas, its ground black. */
  const open = async file => {
    if (!file) return;
    try {
      const bitmap = await createImageBitmap(file);
      const small = new OffscreenCanvas(width, height), into = small.getContext("2d");
      const scale = Math.min(width / bitmap.width, height / bitmap.height);
      const [w, hgt] = [bitmap.width * scale, bitmap.height * scale];
      into.imageSmoothingQuality = "high";
      into.drawImage(bitmap, (width - w) / 2, (height - hgt) / 2, w, hgt);
      take(into.getImageData(0, 0, width, height).data);
      said.textContent = `${file.name}: ${bitmap.width} × ${bitmap.height} pixels`;
      app.clear();
    } catch {
      app.fail(new Error(`${file.name} is not an image that this browser reads`));
    }
  };
  const take = data => {
    const grey = i => (data[4 * i] * .299 + data[4 * i + 1] * .587 + data[4 * i + 2] * .114) / 255 * (data[4 * i + 3] / 255);
    const all = Array.from({ length: height * width }, (_, i) => grey(i));
    const edge = [0, width - 1, (height - 1) * width, height * width - 1].reduce((sum, i) => sum + all[i], 0) / 4;
    const turn = channels === 1 && edge > .5; // dark ink on white paper
    for (let i = 0; i < height * width; i++) {
      for (let c = 0; c < channels; c++) pixels[i * channels + c] = channels === 1 ? (turn ? 1 - all[i] : all[i]) : data[4 * i + Math.min(c, 2)] / 255;
    }
    changed();
  };
  const chooser = h("input", { type: "file", accept: "image/*", class: "unseen", tabindex: -1, "aria-hidden": "true", onchange: () => open(chooser.files[0]) });
  const card = h("section", { class: "card drop", "aria-label": "Image" }, h("h2", {}, "Image"), canvas, said,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: clear }, "Clear"),
      h("button", { type: "button", onclick: () => chooser.click() }, "Open an image…"), chooser));
  card.addEventListener("dragover", event => { event.preventDefault(); card.classList.add("over"); });
  card.addEventListener("dragleave", () => card.classList.remove("over"));
  card.addEventListener("drop", event => {
    event.preventDefault();
    card.classList.remove("over");
    open(event.dataTransfer.files[0]);
  });
  addEventListener("paste", event => open([...event.clipboardData.files].find(file => file.type.startsWith("image/"))));
  stage.replaceChildren(card, h("section", { class: "card", "aria-label": "Outputs" }, h("h2", {}, "Outputs"), answer.element));

  const example = network.ui?.image?.example;
  if (Array.isArray(example) && example.length === pixels.length) pixels.set(example.map(Number));
  await changed();
}

/** Pixels of 0 … 1 in the order and range of the network's input. */
export function arranged(pixels, { height, width, channels, low, high, first }) {
  const numbers = new Float32Array(pixels.length), area = height * width;
  for (let i = 0; i < area; i++) {
    for (let c = 0; c < channels; c++) numbers[first === "channels" ? c * area + i : i * channels + c] = low + pixels[i * channels + c] * (high - low);
  }
  return numbers;
}
