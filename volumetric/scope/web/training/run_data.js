// The runs of the view, from the document or from messages.
import { appendCurves, readCurves } from "./curves.js";

const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#b8508f", "#b37700", "#3d93c9", "#6b6f76"];
const DARK = ["#56b4e9", "#e69f00", "#2bc39a", "#dd8fbd", "#f0e442", "#ff8a4c", "#a9b0bb"];
const MOST_LAYER_POINTS = 2048;

/** Return the colour of run i, readable on the theme's background; with more than 7 runs they repeat. */
export const runColour = (i, dark) => (dark ? DARK : LIGHT)[i % LIGHT.length];

/** Return the runs of the view's data: {runs, inputs}. */
export async function readRuns(data, array) {
  const inputs = await Promise.all(data.inputs.map(one => readInputs(one, array)));
  const runs = await Promise.all(
    data.runs.map(async of => ({
      name: of.name,
      status: of.status,
      running: of.running,
      settings: of.settings,
      notes: of.notes,
      marks: of.marks,
      steps: await readCurves(of.steps, array),
      epochs: await readCurves(of.epochs, array),
      layers: await readLayers(of.layers, array),
      weights: await readWeights(of.weights, array),
      samples: await readSamples(of.samples, inputs, array),
    })),
  );
  return { runs, inputs };
}

/** Change a run by an entry of a message. */
export async function changeRun(run, entry, array) {
  for (const key of ["status", "running", "marks", "notes", "settings"]) if (key in entry) run[key] = entry[key];
  for (const kind of ["steps", "epochs"]) if (entry.points?.[kind]) appendCurves(run[kind], await readCurves(entry.points[kind], array));
  if (entry.points?.layers) run.layers = joinLayers(run.layers, await readLayers(entry.points.layers, array));
  if (entry.weights) run.weights = await readWeights(entry.weights, array);
  if (entry.samples) {
    const known = entry.inputs ? await readInputs(entry.inputs, array) : run.samples?.pictures;
    run.samples = await readSamples({ ...entry.samples, inputs: 0 }, [known], array);
  }
}

/** Replace each reference to an array by {data, shape}. */
async function resolved(value, array) {
  if (value === null || typeof value !== "object") return value;
  if ("$array" in value || "$base64" in value) return array(value);
  if (Array.isArray(value)) return value;
  const entries = await Promise.all(Object.entries(value).map(async ([key, of]) => [key, await resolved(of, array)]));
  return Object.fromEntries(entries);
}

const readInputs = (one, array) => resolved(one, array);

async function readSamples(of, inputs, array) {
  return of ? { ...(await resolved(of, array)), pictures: inputs[of.inputs] } : null;
}

async function readWeights(of, array) {
  return of ? { ...(await resolved(of, array)), keys: of.keys, shapes: of.shapes } : null;
}

async function readLayers(of, array) {
  if (!of) return null;
  const { step, epoch, seconds, values } = await resolved({ step: of.step, epoch: of.epoch, seconds: of.seconds, values: of.values }, array);
  const rows = Object.fromEntries(
    Object.entries(values).map(([name, table]) => [
      name,
      of.names.map((_, i) => Array.from(table.data.subarray(i * table.shape[1], (i + 1) * table.shape[1]))),
    ]),
  );
  return { names: of.names, step: Array.from(step.data), epoch: Array.from(epoch.data), seconds: Array.from(seconds.data), values: rows };
}

function joinLayers(before, more) {
  if (!before) return more;
  const columns = before.step.length,
    joined = { names: more.names };
  for (const axis of ["step", "epoch", "seconds"]) joined[axis] = [...before[axis], ...more[axis]];
  joined.values = Object.fromEntries(
    Object.entries(more.values).map(([name, rows]) => [
      name,
      rows.map((row, i) => [...(before.values[name][i] ?? Array(columns).fill(NaN)), ...row]),
    ]),
  );
  if (joined.step.length > MOST_LAYER_POINTS) {
    // every second point goes
    const half = of => of.filter((_, i) => i % 2 === 0);
    for (const axis of ["step", "epoch", "seconds"]) joined[axis] = half(joined[axis]);
    for (const name of Object.keys(joined.values)) joined.values[name] = joined.values[name].map(half);
  }
  return joined;
}
