// Curves of a run: points over steps, epochs and seconds, which grow while the run goes on.

const MOST_POINTS = 8192;
const AXES = ["step", "epoch", "seconds"];

/** Names of the axes, as the menu shows them. */
export const AXIS_NAMES = { step: "updates", epoch: "epochs", seconds: "seconds" };

/** Return curves {step, epoch, seconds, count, values: {name: {mean, low, high}}} of arrays that can grow. */
export async function readCurves(tables, array) {
  const numbers = async reference => (reference ? Array.from((await array(reference)).data) : null);
  const curves = { count: null, values: {} };
  for (const axis of AXES) curves[axis] = await numbers(tables[axis]);
  curves.count = (await numbers(tables.count)) ?? curves.step.map(() => 1);
  for (const [name, of] of Object.entries(tables.values)) {
    const mean = await numbers(of.mean);
    curves.values[name] = { mean, low: (await numbers(of.low)) ?? [...mean], high: (await numbers(of.high)) ?? [...mean] };
  }
  return curves;
}

/** Append curves to others, and join neighbours when there are too many. */
export function appendCurves(curves, more) {
  const before = curves.step.length,
    added = more.step.length;
  for (const axis of [...AXES, "count"]) curves[axis].push(...more[axis]);
  for (const name of new Set([...Object.keys(curves.values), ...Object.keys(more.values)])) {
    const of = (curves.values[name] ??= { mean: Array(before).fill(NaN), low: Array(before).fill(NaN), high: Array(before).fill(NaN) });
    for (const part of ["mean", "low", "high"]) of[part].push(...(more.values[name]?.[part] ?? Array(added).fill(NaN)));
  }
  while (curves.step.length > MOST_POINTS) halve(curves);
}

function halve(curves) {
  const pairs = of => Array.from({ length: Math.ceil(of.length / 2) }, (_, i) => [2 * i, Math.min(2 * i + 1, of.length - 1)]);
  const all = pairs(curves.step),
    count = curves.count,
    weigh = (i, value) => (Number.isFinite(value) ? count[i] : 0);
  for (const of of Object.values(curves.values)) {
    const mean = all.map(([a, b]) => {
      if (a === b) return of.mean[a];
      const wa = weigh(a, of.mean[a]),
        wb = weigh(b, of.mean[b]);
      return wa + wb ? ((wa && of.mean[a] * wa) + (wb && of.mean[b] * wb)) / (wa + wb) : NaN;
    });
    const pick = (f, part) =>
      all.map(([a, b]) => {
        const finite = [of[part][a], of[part][b]].filter(Number.isFinite);
        return finite.length ? f(...finite) : NaN;
      });
    Object.assign(of, { low: pick(Math.min, "low"), high: pick(Math.max, "high"), mean });
  }
  for (const axis of AXES) curves[axis] = all.map(([, b]) => curves[axis][b]);
  curves.count = all.map(([a, b]) => (a === b ? count[a] : count[a] + count[b]));
}

/**
 * Return the exponential moving average of values, started without a bias (Kingma and Ba, https://arxiv.org/abs/1412.6980,
 * section 3). `weight` 0 … 1 is that of the past at each recorded point; a value that stands for several counts as often.
 */
export function smoothed(values, counts, weight) {
  if (!weight) return values;
  const result = new Array(values.length);
  let sum = 0,
    share = 0;
  for (let i = 0; i < values.length; i++) {
    if (!Number.isFinite(values[i])) {
      result[i] = NaN;
      continue;
    }
    const past = weight ** counts[i];
    sum = past * sum + (1 - past) * values[i];
    share = past * share + (1 - past);
    result[i] = sum / share;
  }
  return result;
}
