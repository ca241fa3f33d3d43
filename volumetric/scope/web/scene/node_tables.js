// Where nodes are and how they look, as textures that the shaders of nodes and of edges read.
import { DataTexture, FloatType, RGBAFormat, Vector3 } from "../vendor/three.min.js";

/** Bits of a node's look: the fourth byte of its colour. */
export const LOOK = { ghost: 1, dim: 2, chosen: 4, hovered: 8, loop: 16 };

/** GLSL that reads a node. */
export const NODE_GLSL = `
uniform highp sampler2D places, layers;
uniform lowp sampler2D looks;
uniform int across;
uniform float radius, pixel, flat_view;
uniform vec3 spread, low, high;
ivec2 cellOf(int i) { return ivec2(i % across, i / across); }
// x, y, z and size of a node; the size is 0 where it is not shown
vec4 nodeAt(int i) {
  ivec2 cell = cellOf(i);
  vec4 place = texelFetch(places, cell, 0);
  if (any(lessThan(place.xyz, low)) || any(greaterThan(place.xyz, high))) place.w = 0.;
  if (spread != vec3(0.)) place.xyz += spread * texelFetch(layers, cell, 0).r;
  return place;
}
// size of a pixel in the scene's units at a distance from the eye
float pixelAt(float depth) { return pixel * mix(depth, 1., flat_view); }`;

/** Return the distance that neighbours usually have: the median over a sample of nodes, never 0. */
function usualSpacing(at, count) {
  if (count < 2) return 1;
  const low = [Infinity, Infinity, Infinity],
    high = [-Infinity, -Infinity, -Infinity];
  for (let i = 0; i < 3 * count; i++) {
    low[i % 3] = Math.min(low[i % 3], at[i]);
    high[i % 3] = Math.max(high[i % 3], at[i]);
  }
  const sides = [0, 1, 2].map(k => high[k] - low[k]),
    wide = sides.filter(side => side > 0);
  if (!wide.length) return 1;
  // a cell of this side holds about one node, so that the nearest is in one of the cells around
  const cell = Math.max(...wide.map(side => side / 200), (wide.reduce((a, b) => a * b, 1) / count) ** (1 / wide.length));
  const key = (x, y, z) => (x * 1009 + y) * 1013 + z,
    cells = new Map();
  const spot = i => [0, 1, 2].map(k => Math.floor((at[3 * i + k] - low[k]) / cell));
  for (let i = 0; i < count; i++) {
    const name = key(...spot(i));
    if (!cells.has(name)) cells.set(name, []);
    if (cells.get(name).length < 16) cells.get(name).push(i);
  }
  const nearest = [],
    step = Math.max(1, Math.floor(count / 500));
  for (let i = 0; i < count; i += step) {
    const [x, y, z] = spot(i);
    let best = Infinity;
    for (let dx = -1; dx < 2; dx++)
      for (let dy = -1; dy < 2; dy++)
        for (let dz = -1; dz < 2; dz++) {
          for (const j of cells.get(key(x + dx, y + dy, z + dz)) ?? []) {
            const far = Math.hypot(at[3 * i] - at[3 * j], at[3 * i + 1] - at[3 * j + 1], at[3 * i + 2] - at[3 * j + 2]);
            if (far > 1e-6 && far < best) best = far;
          }
        }
    if (best < Infinity) nearest.push(best);
  }
  return nearest.length ? nearest.sort((a, b) => a - b)[nearest.length >> 1] : Math.max(...wide) / Math.max(1, count - 1);
}

/**
 * Return the nodes: `places` (x right, y up, z towards the viewer, size), `looks`, `layers` (how far each moves when pulled
 * apart; its shape), and uniforms.
 */
export function makeNodes(tables) {
  const count = tables.names.length,
    across = Math.max(1, Math.min(1024, Math.ceil(Math.sqrt(count)))),
    rows = Math.max(1, Math.ceil(count / across));
  const places = new Float32Array(4 * across * rows),
    looks = new Uint8Array(4 * across * rows),
    layers = new Float32Array(4 * across * rows),
    visible = new Uint8Array(count).fill(1);
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < 3; k++) places[4 * i + k] = (k === 1 ? -1 : 1) * tables.at.data[3 * i + k];
    places[4 * i + 3] = 1;
  }
  const box = { low: new Vector3(Infinity, Infinity, Infinity), high: new Vector3(-Infinity, -Infinity, -Infinity) },
    spot = new Vector3();
  for (let i = 0; i < count; i++) {
    box.low.min(spot.fromArray(places, 4 * i));
    box.high.max(spot);
  }
  if (!count) {
    box.low.set(0, 0, 0);
    box.high.set(0, 0, 0);
  }
  const spacing = usualSpacing(tables.at.data, count);
  const texture = (data, format, type) => {
    const one = new DataTexture(data, across, rows, format, ...(type ? [type] : []));
    one.needsUpdate = true;
    return one;
  };
  const textures = {
    places: texture(places, RGBAFormat, FloatType),
    looks: texture(looks, RGBAFormat),
    layers: texture(layers, RGBAFormat, FloatType),
  };
  // in a full block of nodes smaller ones let see what is behind
  const deep = ["x", "y", "z"].every(axis => box.high[axis] - box.low[axis] >= 1.5 * spacing),
    far = 1e9;
  const usualRadius = spacing * (deep ? 0.22 : 0.3);
  const uniforms = {
    places: { value: textures.places },
    looks: { value: textures.looks },
    layers: { value: textures.layers },
    across: { value: across },
    radius: { value: usualRadius },
    pixel: { value: 0.001 },
    flat_view: { value: 0 },
    spread: { value: new Vector3() },
    low: { value: new Vector3(-far, -far, -far) },
    high: { value: new Vector3(far, far, far) },
  };
  const shown = i => {
    const p = 4 * i,
      { low, high } = { low: uniforms.low.value, high: uniforms.high.value };
    return (
      places[p + 3] > 0 &&
      places[p] >= low.x &&
      places[p] <= high.x &&
      places[p + 1] >= low.y &&
      places[p + 1] <= high.y &&
      places[p + 2] >= low.z &&
      places[p + 2] <= high.z
    );
  };
  /** Put the place of a node, as it is drawn, into a vector. */
  const position = (i, into) => into.fromArray(places, 4 * i).addScaledVector(uniforms.spread.value, layers[4 * i]);
  return {
    count,
    places,
    looks,
    layers,
    visible,
    box,
    core: { low: box.low.clone(), high: box.high.clone() },
    spacing,
    usualRadius,
    uniforms,
    shown,
    position,
    radius: i => uniforms.radius.value * places[4 * i + 3],
    changed(...names) {
      for (const name of names) textures[name].needsUpdate = true;
    },
    destroy() {
      for (const one of Object.values(textures)) one.dispose();
    },
  };
}
