// An image that is drawn by hand, with the pointer or with keys.
import { h } from "./elements.js";

/** Return {canvas, pixels, paint, clear}: pixels are height × width × channels, 0 is the ground and 1 the ink; `changed()` follows each stroke. */
export function pixelPad({ height, width, channels = 1 }, changed) {
  const pixels = new Float32Array(height * width * channels);
  const canvas = h("canvas", {
    class: "pixels", width, height, tabindex: 0, role: "application",
    "aria-label": `Image of ${width} × ${height} pixels. Arrow keys move the pen, space draws, delete clears.`,
  });
  const context = canvas.getContext("2d");
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
  const moved = () => { paint(); changed(); };

  /** Draw a round spot; strokes of small images are thinner. */
  const spot = (y, x) => {
    const radius = Math.max(.8, Math.min(height, width) / 18);
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
    moved();
  };
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); last = null; stroke(event); });
  canvas.addEventListener("pointermove", event => { if (event.buttons & 1) stroke(event); });
  canvas.addEventListener("focus", () => { focused = canvas.matches(":focus-visible"); paint(); });
  canvas.addEventListener("blur", () => { focused = false; paint(); });
  const clear = () => { pixels.fill(0); moved(); };
  canvas.addEventListener("keydown", event => {
    const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (step) pen = [Math.min(height - 1, Math.max(0, pen[0] + step[0])), Math.min(width - 1, Math.max(0, pen[1] + step[1]))];
    else if (event.key === " ") spot(pen[0] + .5, pen[1] + .5);
    else if (event.key === "Delete" || event.key === "Backspace") clear();
    else return;
    event.preventDefault();
    focused = true;
    moved();
  });
  return { canvas, pixels, paint, clear };
}

/** Pixels of 0 … 1 in the order and range of the network's input. */
export function arranged(pixels, { height, width, channels, low, high, first }) {
  const numbers = new Float32Array(pixels.length), area = height * width;
  for (let i = 0; i < area; i++) {
    for (let c = 0; c < channels; c++) numbers[first === "channels" ? c * area + i : i * channels + c] = low + pixels[i * channels + c] * (high - low);
  }
  return numbers;
}
