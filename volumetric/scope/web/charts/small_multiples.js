// Many small square matrices in rows and columns on one canvas; one of them is chosen.
import { h } from "../elements.js";
import { colourTable } from "./colours.js";

const GAP = 4,
  TOP = 18;

/**
 * Return {element, canvas, choose(row, column), draw(), destroy()}.
 *
 * rows: [{name, matrices: [{data, size, blank}]}]; data has size × size values; blank(row, column) is true for those that are not drawn.
 * options: {label, tooltip, describe(row, column) → text, onPick(row, column), shade(value) → 0 … 1, map, background() → [r, g, b]}
 */
export function smallMultiples(rows, options = {}) {
  const canvas = h("canvas", { tabindex: 0, role: "img", "aria-label": options.label ?? "matrices" });
  const element = h("div", { class: "multiples" }, canvas);
  const columns = Math.max(...rows.map(row => row.matrices.length));
  let chosen = [0, 0],
    hovered = null,
    cell = 40,
    left = 60,
    waiting = 0;
  const pictures = new Map();

  function picture(matrix) {
    if (pictures.has(matrix)) return pictures.get(matrix);
    const { data, size, blank } = matrix,
      table = colourTable(options.map ?? "viridis");
    const small = h("canvas", { width: size, height: size }),
      brush = small.getContext("2d"),
      image = brush.createImageData(size, size);
    for (let i = 0; i < size * size; i++) {
      if (blank?.(Math.floor(i / size), i % size)) continue;
      const code = 3 * Math.max(0, Math.min(255, Math.round(255 * (options.shade?.(data[i]) ?? data[i]))));
      image.data.set([table[code], table[code + 1], table[code + 2], 255], 4 * i);
    }
    brush.putImageData(image, 0, 0);
    pictures.set(matrix, small);
    return small;
  }
  function draw() {
    waiting ||= requestAnimationFrame(() => {
      waiting = 0;
      drawNow();
    });
  }
  function drawNow() {
    const ratio = Math.min(2, devicePixelRatio),
      style = getComputedStyle(element);
    left = 14 + 6.2 * Math.max(...rows.map(row => row.name.length));
    cell = Math.max(16, Math.min(104, Math.floor((element.clientWidth - left - 4) / columns) - GAP));
    const width = left + columns * (cell + GAP),
      height = TOP + rows.length * (cell + GAP) + 2;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const brush = canvas.getContext("2d");
    brush.scale(ratio, ratio);
    brush.font = "11px system-ui, sans-serif";
    brush.fillStyle = style.getPropertyValue("--dim");
    brush.textBaseline = "middle";
    brush.textAlign = "center";
    for (let k = 0; k < columns; k++) if (cell > 20 || k % 4 === 0) brush.fillText(k, left + k * (cell + GAP) + cell / 2, TOP / 2);
    brush.textAlign = "right";
    rows.forEach((row, i) => {
      const y = TOP + i * (cell + GAP);
      brush.fillStyle = style.getPropertyValue(i === chosen[0] ? "--front" : "--dim");
      brush.fillText(row.name, left - 8, y + cell / 2);
      row.matrices.forEach((matrix, k) => {
        const x = left + k * (cell + GAP);
        brush.fillStyle = style.getPropertyValue("--raised");
        brush.fillRect(x, y, cell, cell);
        brush.imageSmoothingEnabled = matrix.size > cell * ratio;
        brush.drawImage(picture(matrix), x, y, cell, cell);
        if (i === chosen[0] && k === chosen[1]) frame(brush, x, y, style.getPropertyValue("--accent"), 2.5);
        else if (hovered && i === hovered[0] && k === hovered[1]) frame(brush, x, y, style.getPropertyValue("--dim"), 1.5);
      });
    });
  }
  function frame(brush, x, y, colour, width) {
    brush.strokeStyle = colour;
    brush.lineWidth = width;
    brush.strokeRect(x - 1, y - 1, cell + 2, cell + 2);
  }
  const at = event => {
    const box = canvas.getBoundingClientRect();
    const place = [Math.floor((event.clientY - box.top - TOP) / (cell + GAP)), Math.floor((event.clientX - box.left - left) / (cell + GAP))];
    return rows[place[0]]?.matrices[place[1]] ? place : null;
  };
  canvas.addEventListener("pointermove", event => {
    hovered = at(event);
    if (hovered) options.tooltip?.show(event.clientX, event.clientY, options.describe?.(...hovered) ?? "");
    else options.tooltip?.hide();
    draw();
  });
  canvas.addEventListener("pointerleave", () => {
    hovered = null;
    options.tooltip?.hide();
    draw();
  });
  canvas.addEventListener("click", event => {
    const place = at(event);
    if (place) pick(place);
  });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const next = [chosen[0] + step[0], chosen[1] + step[1]];
    if (rows[next[0]]) pick([next[0], Math.min(next[1], rows[next[0]].matrices.length - 1)]);
  });
  function pick(place) {
    if (!rows[place[0]]?.matrices[place[1]]) return;
    chosen = place;
    draw();
    options.onPick?.(...place);
  }
  const watcher = new ResizeObserver(draw);
  watcher.observe(element);
  return {
    element,
    canvas,
    draw,
    choose(row, column) {
      chosen = [row, column];
      draw();
    },
    repaint() {
      pictures.clear();
      draw();
    },
    destroy() {
      watcher.disconnect();
      cancelAnimationFrame(waiting);
      element.remove();
    },
  };
}
