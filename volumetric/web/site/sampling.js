// Draws on the host: temperature → top-k → top-p → min-p → draw, as `volumetric.generate.sampler`. For rows that the GPU
// leaves to the host, and for parameters beyond its fixed point.

import { GenerationError, InputError } from "./errors.js";

const RANGES = {
  temperature: [0, 1e6, "a number from 0 to 1,000,000"],
  topK: [0, 2 ** 31, "a whole number of 0 (off) or more"],
  topP: [Number.MIN_VALUE, 1, "above 0 and at most 1"],
  minP: [0, 1, "from 0 to 1"],
  repetitionPenalty: [Number.MIN_VALUE, 1e6, "above 0"],
  maxTokens: [1, Infinity, "a whole number of 1 or more"],
};
const WHOLE = ["topK", "maxTokens"];

/** A value as an error names it. */
export const shown = value => (typeof value === "string" ? JSON.stringify(value) : String(value));

/** Complete sampling parameters: options, then the model's defaults, then greedy ones. */
export function samplingParams(options, defaults = {}) {
  const params = { temperature: 0, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1, maxTokens: 256, seed: null, stop: [], ...defaults };
  for (const [name, value] of Object.entries(options)) if (value !== undefined && Object.hasOwn(params, name)) params[name] = value;
  for (const [name, [low, high, text]] of Object.entries(RANGES)) {
    const value = params[name];
    const fits = typeof value === "number" && value >= low && value <= high && (!WHOLE.includes(name) || Number.isInteger(value) || value === Infinity);
    if (!fits) throw new InputError(`${name} must be ${text}, got ${shown(value)}.`);
  }
  const { seed } = params;
  if (seed !== null && !(typeof seed === "bigint" ? seed >= 0n && seed < 2n ** 64n : Number.isSafeInteger(seed) && seed >= 0)) {
    throw new InputError(`seed must be a whole number from 0 to 2⁶⁴ - 1, got ${shown(seed)}.`, "Pass numbers above 2⁵³ as BigInt.");
  }
  params.stop = [params.stop].flat();
  if (!params.stop.every(text => typeof text === "string" && text)) throw new InputError("stop must be one or more non-empty texts.");
  return params;
}

/** Raise unless the largest of some logits is a finite number. */
function checkLogits(logits) {
  let top = -Infinity;
  for (const value of logits) {
    if (Number.isNaN(value)) throw unusableLogits("NaN");
    if (value > top) top = value;
  }
  if (!Number.isFinite(top)) throw unusableLogits(top > 0 ? "infinite" : "all -inf");
  return top;
}

/** The error of logits that allow no choice. */
export function unusableLogits(what) {
  return new GenerationError(`The model's logits are ${what}: no token can be chosen.`, "Its weights may be damaged; load it again.");
}

/** Indices of the `count` largest, the lower index first among equals, in ascending order. */
function largest(values, count) {
  const order = Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b);
  return order.slice(0, count).sort((a, b) => a - b);
}

/** Index of the largest, the lowest among equals. */
export function argmax(logits) {
  checkLogits(logits);
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

/**
 * Draw a token.
 * @param {Float32Array} logits
 * @param {{temperature: number, topK: number, topP: number, minP: number}} params
 * @param {number} number in [0, 1), of the draw
 * @param {Set<number> | null} seen ids whose scores the repetition penalty changes
 */
export function drawToken(logits, params, number, seen = null) {
  const { temperature, topK, topP, minP } = params;
  if (seen) logits = penalised(logits, seen, params.repetitionPenalty);
  const top = checkLogits(logits);
  if (temperature === 0) return argmax(logits);
  const ids = topK > 0 && topK < logits.length ? largest(logits, topK) : null;
  const size = ids ? ids.length : logits.length;
  const weights = new Float64Array(size);
  // a difference of float32 numbers, as on the other devices
  for (let i = 0; i < size; i++) weights[i] = Math.exp(Math.fround(logits[ids ? ids[i] : i] - top) / temperature);
  const excluded = new Uint8Array(size);
  if (topP < 1) excludeTail(weights, excluded, topP);
  let total = 0;
  const sums = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    if (!excluded[i] && weights[i] >= minP) total += weights[i];
    sums[i] = total;
  }
  const goal = number * total;
  const chosen = sums.findIndex(sum => sum > goal);
  return ids ? ids[chosen] : chosen;
}

/** Divide positive and multiply negative scores of some ids (CTRL, arXiv:1909.05858). */
function penalised(logits, ids, penalty) {
  const scores = logits.slice();
  const single = Math.fround(penalty);
  for (const id of ids) if (id < scores.length) scores[id] = scores[id] > 0 ? scores[id] / single : scores[id] * single;
  return scores;
}

/** Exclude all but the fewest weights, largest first, whose sum reaches `topP` of the whole. */
function excludeTail(weights, excluded, topP) {
  const order = Array.from(weights.keys()).sort((a, b) => weights[b] - weights[a] || a - b);
  const goal = topP * weights.reduce((a, b) => a + b, 0);
  let sum = 0;
  for (const i of order) {
    if (sum >= goal && sum > 0) excluded[i] = 1;
    sum += weights[i];
  }
}
