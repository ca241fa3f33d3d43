// Where the inspector's data come from: those of the page, else the program behind it.
import { readTables } from "../scene/read_tables.js";

/** Most rows and columns of a block that is shown number by number. */
export const SIDE = 128;

/** Return the name under which the weights of a parameter are stored. */
export const keyOf = (layer, parameter) => parameter.shared ?? `${layer.coord}/${parameter.name}`;

function sliced(array, [, columns], [top, bottom], [left, right]) {
  const out = new array.data.constructor((bottom - top) * (right - left));
  for (let i = top; i < bottom; i++) out.set(array.data.subarray(i * columns + left, i * columns + right), (i - top) * (right - left));
  return { data: out, shape: [bottom - top, right - left] };
}

/** Return {mean, rms, part} of a block of an exact matrix, in at most SIDE × SIDE parts. */
function averaged(array, [, columns], [top, bottom], [left, right]) {
  const high = Math.ceil((bottom - top) / SIDE), wide = Math.ceil((right - left) / SIDE);
  const shape = [Math.ceil((bottom - top) / high), Math.ceil((right - left) / wide)];
  const mean = new Float32Array(shape[0] * shape[1]), rms = new Float32Array(mean.length), counts = new Uint32Array(mean.length);
  for (let i = top; i < bottom; i++) for (let j = left; j < right; j++) {
    const at = Math.floor((i - top) / high) * shape[1] + Math.floor((j - left) / wide), value = array.data[i * columns + j];
    mean[at] += value; rms[at] += value * value; counts[at]++;
  }
  for (let at = 0; at < mean.length; at++) { mean[at] /= counts[at]; rms[at] = Math.sqrt(rms[at] / counts[at]); }
  return { mean: { data: mean, shape }, rms: { data: rms, shape }, part: [high, wide] };
}

/**
 * Return what answers the inspector: layers, place(node), firstNode(coordinate), parameter(…), numbers(node, t),
 * explain(node, t, group, index, at), rows (those whose numbers the page has), live. Promises reject with a sentence.
 */
export function makeSource({ data, view, app }) {
  const held = data.inspection ?? { layers: [], weights: {}, numbers: null, rows: [], count: 0, missing: [], why: "" };
  let entries = null;
  /** Return what the page has of a node at a row, or undefined. */
  async function entryOf(node, t) {
    if (!entries) {
      const list = held.numbers ? JSON.parse(new TextDecoder().decode(held.numbers.data)) : [];
      entries = new Map(list.map(entry => [`${entry.t}/${entry.node}`, entry]));
    }
    const entry = entries.get(`${t}/${node}`);
    return entry && { ...entry, groups: await readTables(entry.groups, app) };
  }
  const byCoord = new Map(held.layers.map(layer => [layer.coord, layer]));
  const ask = async action => readTables(await app.live.act(view.name, action), app);
  const live = Boolean(app.live && data.inspection);

  const source = {
    layers: held.layers, missing: held.missing, count: held.count, ticks: held.ticks, why: held.why, live,
    rows: held.rows,
    /** Return {layer, within} of a node; within is null if the layer is one node. */
    place(node) {
      const layer = held.layers.find(one => node >= one.first && node < one.first + one.count);
      return layer && { layer, within: layer.nodes || layer.regions ? node - layer.first : null };
    },
    firstNode: coord => byCoord.get(coord)?.first ?? null,
    layerAt: coord => byCoord.get(coord) ?? null,
    /** Return a block of a parameter: {values, codes?, scale?, offset?} as arrays, or {mean, rms, part}. */
    async parameter(layer, parameter, rows, columns) {
      const block = held.weights[keyOf(layer, parameter)], [height, width] = parameter.matrix;
      const small = rows[1] - rows[0] <= SIDE && columns[1] - columns[0] <= SIDE;
      if (block?.values) {
        if (!small) return averaged(block.values, parameter.matrix, rows, columns);
        const part = { kind: block.kind };
        for (const name of ["values", "codes", "scale", "offset"]) if (block[name]) part[name] = sliced(block[name], parameter.matrix, rows, columns);
        return part;
      }
      const whole = rows[0] === 0 && columns[0] === 0 && rows[1] === height && columns[1] === width;
      if (live) return ask({ do: "parameter", node: layer.first, name: parameter.name, rows, columns });
      if (block && whole) return block;
      throw new Error(block ? "This page has only averages of these weights. `volumetric scope` without --html shows every one."
        : "These weights are not in this page. `volumetric scope` without --html shows them.");
    },
    /** Return {fired, groups} of a node at a row. */
    async numbers(node, t) {
      const entry = await entryOf(node, t);
      if (entry) return entry;
      if (live) return ask({ do: "numbers", node, t });
      throw new Error(held.count ? "" : held.why);
    },
    /** Return {value, steps, fired} of a number of a node at a row. */
    async explain(node, t, group, index, at = null) {
      if (live) return ask({ do: "explain", node, t, of: group, index, ...(at ? { at } : {}) });
      const trace = (await entryOf(node, t))?.explained?.[group]?.[index];
      if (trace) return trace;
      throw new Error("The steps of this number are not in this page. `volumetric scope` without --html shows them.");
    },
  };
  return source;
}
