// Draws the genealogy: siblings as faint ticks, lines from parents to children, dots, and the generations below.
import { speciesColour as colour } from "./species_colours.js";

const MARGIN = { left: 14, right: 14, top: 12, bottom: 26 },
  MOST_EDGES = 3000;

const rgbOf = text =>
  text.startsWith("#")
    ? (text.length === 4 ? [...text.slice(1)].map(d => d + d) : text.slice(1).match(/../g)).map(d => parseInt(d, 16))
    : text
        .match(/[\d.]+/g)
        .slice(0, 3)
        .map(Number);
const pack = ([red, green, blue]) => ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0; // as bytes of a pixel, little-endian

/**
 * Return {x(row), y(place), rowAt(px), siblings(ratio), paint(brush)}.
 *
 * picture: what is drawn, read anew each time: {store, genomes, traced, transform, width, height, species, generation,
 * hovered, chosen, colours, theme}, see lineage.js.
 */
export function lineagePainter(picture) {
  const rowsShown = () => Math.max(1, picture.store.rows.length - 1);
  const across = () => picture.width - MARGIN.left - MARGIN.right;
  const x = row => picture.transform.applyX(MARGIN.left + (row / rowsShown()) * across());
  const y = place => picture.transform.applyY(MARGIN.top + picture.genomes.y[place] * (picture.height - MARGIN.top - MARGIN.bottom));
  const rowAt = px => ((picture.transform.invertX(px) - MARGIN.left) / across()) * rowsShown();
  const parentsOf = place => [picture.genomes.parents[2 * place], picture.genomes.parents[2 * place + 1]];
  const ticks = document.createElement("canvas");
  let ticksKey = "";
  const stepWidth = () => (across() / rowsShown()) * picture.transform.k;
  const shownRow = () => {
    const step = stepWidth();
    return r => x(r) > -step && x(r) < picture.width + step;
  };
  /** Draw lines and dots by a canvas's context, or by what stands for one. */
  function paint(brush) {
    const inRow = shownRow();
    const step = stepWidth();
    // edges, those that passed on most last
    const shown = picture.traced.members.filter(
      i => inRow(picture.genomes.row[i]) || parentsOf(i).some(p => p >= 0 && inRow(picture.genomes.row[p])),
    );
    shown.sort((a, b) => picture.traced.share[a] - picture.traced.share[b]);
    const drawn = shown.slice(-MOST_EDGES);
    for (const i of drawn) {
      brush.strokeStyle = colour(picture.genomes.species[i]);
      parentsOf(i).forEach((p, side) => {
        if (p < 0 || !picture.traced.share[p]) return;
        const strength = Math.sqrt(Math.min(picture.traced.share[i], 1));
        brush.globalAlpha =
          Math.min(0.8, (0.06 + 0.75 * strength) * (side ? 0.6 : 1)) *
          (picture.species === null || picture.genomes.species[i] === picture.species ? 1 : 0.25);
        brush.lineWidth = side ? 0.8 : 0.8 + 1.4 * strength;
        curve(brush, p, i);
      });
    }
    // the line of fitter parents
    brush.globalAlpha = 1;
    brush.strokeStyle = picture.colours.front;
    brush.lineWidth = 2;
    picture.traced.line.slice(1).forEach((p, n) => curve(brush, p, picture.traced.line[n]));
    const large = Math.max(1.2, Math.min(7, step * 0.3));
    for (const i of drawn) {
      brush.globalAlpha = Math.min(1, 0.3 + Math.sqrt(Math.min(1, picture.traced.share[i])));
      brush.fillStyle = colour(picture.genomes.species[i]);
      glyph(brush, i, large);
    }
    brush.globalAlpha = 1;
    axis(brush, inRow, step);
    if (picture.hovered >= 0) ring(brush, picture.hovered, large + 3, picture.colours.front, 1.5);
    if (picture.chosen >= 0) ring(brush, picture.chosen, large + 3.5, picture.colours.accent, 2.5);
  }
  /** Return all picture.genomes as faint ticks on a canvas of its own, drawn anew only where these change. */
  function siblings(ratio) {
    const step = stepWidth(),
      inRow = shownRow();
    const key = [
      picture.transform,
      picture.width,
      picture.height,
      ratio,
      picture.species,
      picture.theme,
      picture.genomes.count,
      picture.genomes.version,
    ].join(" ");
    if (key === ticksKey) return ticks;
    ticksKey = key;
    ticks.width = Math.round(picture.width * ratio);
    ticks.height = Math.round(picture.height * ratio);
    const brush = ticks.getContext("2d", { willReadFrequently: true }),
      image = brush.createImageData(ticks.width, ticks.height);
    const pixels = new Uint32Array(image.data.buffer),
      back = rgbOf(picture.colours.panel);
    pixels.fill(pack(back));
    const lanes = Math.max(1, picture.genomes.count / Math.max(1, picture.store.rows.length));
    const side = Math.max(1, Math.min(4, 0.55 * Math.min(step, (picture.transform.k * (picture.height - 40)) / lanes))) * ratio,
      size = Math.max(1, Math.round(side));
    let last = null,
      ink = 0;
    for (let r = 0; r < picture.store.rows.length; r++) {
      if (!inRow(r)) continue;
      const left = Math.round(x(r) * ratio - size / 2);
      for (let i = picture.genomes.rowStart[r]; i < picture.genomes.rowStart[r + 1]; i++) {
        const id = picture.genomes.species[i],
          top = Math.round(y(i) * ratio - size / 2);
        if (id !== last) {
          const strength = picture.species === null ? 0.4 : id === picture.species ? 0.9 : 0.1;
          ink = pack(rgbOf(colour(id)).map((value, c) => back[c] + (value - back[c]) * strength));
          last = id;
        }
        for (let py = Math.max(0, top); py < Math.min(ticks.height, top + size); py++) {
          for (let px = Math.max(0, left); px < Math.min(ticks.width, left + size); px++) pixels[py * ticks.width + px] = ink;
        }
      }
    }
    brush.putImageData(image, 0, 0);
    return ticks;
  }
  function curve(brush, from, to) {
    const x0 = x(picture.genomes.row[from]),
      x1 = x(picture.genomes.row[to]),
      middle = (x0 + x1) / 2;
    brush.beginPath();
    brush.moveTo(x0, y(from));
    brush.bezierCurveTo(middle, y(from), middle, y(to), x1, y(to));
    brush.stroke();
  }
  /** A clone is hollow, a crossover a diamond, others are dots, where there is room for shapes. */
  function glyph(brush, i, size) {
    const kind = picture.store.kinds[picture.genomes.kinds[i]],
      cx = x(picture.genomes.row[i]),
      cy = y(i);
    brush.beginPath();
    if (kind === "crossover" && size > 2.5) {
      brush.moveTo(cx, cy - size * 1.15);
      brush.lineTo(cx + size * 1.15, cy);
      brush.lineTo(cx, cy + size * 1.15);
      brush.lineTo(cx - size * 1.15, cy);
    } else brush.arc(cx, cy, size, 0, 2 * Math.PI);
    brush.fill();
    if (kind === "clone" && size > 2.5) {
      brush.fillStyle = picture.colours.panel;
      brush.beginPath();
      brush.arc(cx, cy, size * 0.55, 0, 2 * Math.PI);
      brush.fill();
    }
  }
  function ring(brush, i, size, stroke, line) {
    brush.strokeStyle = stroke;
    brush.lineWidth = line;
    brush.beginPath();
    brush.arc(x(picture.genomes.row[i]), y(i), size, 0, 2 * Math.PI);
    brush.stroke();
  }
  function axis(brush, inRow, step) {
    brush.fillStyle = picture.colours.panel;
    brush.fillRect(0, picture.height - MARGIN.bottom + 4, picture.width, MARGIN.bottom);
    brush.globalAlpha = 1;
    brush.fillStyle = picture.colours.dim;
    brush.font = "11px system-ui, sans-serif";
    brush.textAlign = "center";
    const every = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find(n => n * step >= 56) ?? 2000;
    for (let r = 0; r < picture.store.rows.length; r += every) {
      if (inRow(r) && x(r) > 12 && x(r) < picture.width - 16) brush.fillText(picture.store.rows[r].generation, x(r), picture.height - 7);
    }
    const at = x(picture.store.place(picture.generation));
    brush.strokeStyle = picture.colours.accent;
    brush.globalAlpha = 0.6;
    brush.lineWidth = 1;
    brush.beginPath();
    brush.moveTo(at, 0);
    brush.lineTo(at, picture.height - MARGIN.bottom + 4);
    brush.stroke();
    brush.globalAlpha = 1;
  }
  return { x, y, rowAt, siblings, paint };
}
