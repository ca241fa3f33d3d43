// Colours of values and of classes. Maps of values are perceptually even and readable for the colour-blind; classes are
// those of Okabe and Ito (https://jfly.uni-koeln.de/color/).
import { interpolateCividis, interpolateMagma, interpolatePuOr, interpolateRdBu, interpolateViridis } from "../vendor/d3.min.js";

const MAPS = { viridis: interpolateViridis, cividis: interpolateCividis, magma: interpolateMagma };
const DIVERGING = { PuOr: interpolatePuOr, RdBu: interpolateRdBu };
const CLASSES = ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f0e442", "#0072b2", "#d55e00", "#999999"];

/** Names of the maps for values from low to high, and for values around 0. */
export const MAP_NAMES = Object.keys(MAPS), DIVERGING_NAMES = Object.keys(DIVERGING);

const tables = new Map();

function rgb(text) {
  const numbers = text.startsWith("#")
    ? [1, 3, 5].map(i => parseInt(text.slice(i, i + 2), 16)) : text.match(/[\d.]+/g).map(Number);
  return numbers.slice(0, 3);
}

/** Return 256 colours of a map as a Uint8Array of 256 × 3. */
export function colourTable(name) {
  if (!tables.has(name)) {
    const map = MAPS[name] ?? DIVERGING[name];
    if (!map) throw new Error(`there is no colour map ${name}`);
    tables.set(name, Uint8Array.from(Array.from({ length: 256 }, (_, i) => rgb(map(i / 255))).flat()));
  }
  return tables.get(name);
}

/** Return the colour of class `i` as a CSS text; with more than 8 classes they repeat. */
export const classColour = i => CLASSES[i % CLASSES.length];

/** Return the colour of class `i` as [r, g, b], each 0 … 255. */
export const classRgb = i => rgb(classColour(i));

/** Return a CSS gradient of a map, for legends. */
export function gradient(name) {
  const table = colourTable(name);
  const stops = Array.from({ length: 17 }, (_, i) => {
    const at = Math.min(255, i * 16) * 3;
    return `rgb(${table[at]},${table[at + 1]},${table[at + 2]})`;
  });
  return `linear-gradient(to right, ${stops.join(", ")})`;
}
