// Colours of species: the classes of charts, in three shades, so that neighbours of one class differ.
import { classRgb } from "../charts/colours.js";

const SHADES = [0, 0.34, -0.28],
  colours = new Map();

/** Return the colour of a species as a CSS text; those that are shown together, and runs without species, are grey. */
export function speciesColour(id) {
  if (!colours.has(id)) colours.set(id, id < 0 ? "#8a93a3" : shaded(id));
  return colours.get(id);
}

function shaded(id) {
  const shade = SHADES[Math.floor(id / 8) % SHADES.length];
  return `rgb(${classRgb(id % 7).map(value => Math.round(shade > 0 ? value + (255 - value) * shade : value * (1 + shade)))})`;
}
