// An image in: drawn by hand, dropped or opened; what the network sees in it, while it is drawn.
import { answers } from "../answers.js";
import { h } from "../elements.js";
import { widthOf } from "../fields.js";
import { latestRun, milliseconds } from "../latest_run.js";
import { arranged, pixelPad } from "../pixel_pad.js";

export async function show(stage, model, app) {
  const network = model.info, port = Object.keys(network.inputs)[0];
  const { height, width, channels = 1, low = 0, high = 1, first = "channels" } = network.ui?.image ?? {};
  const total = widthOf(network.inputs[port]);
  if (!(height > 0 && width > 0) || height * width * channels !== total) throw new Error(`The export says nothing of an image of ${total} numbers.`);
  const said = h("p", { class: "note", role: "status" }, "Draw here, or drop an image.");
  const answer = answers(network);
  const ask = latestRun(model, (outputs, time) => {
    app.clear();
    answer.show(outputs);
    app.speed(`${milliseconds(time)} a call`);
  }, app.fail);
  const changed = () => ask({ [port]: arranged(pixels, { height, width, channels, low, high, first }) });
  const { canvas, pixels, paint, clear: empty } = pixelPad({ height, width, channels }, changed);

  const clear = () => { empty(); said.textContent = "The image is empty."; };
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
    paint();
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
  paint();
  await changed();
}
