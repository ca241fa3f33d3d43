// Learning in the page: updates of a network that was exported with --learn, by the programs in its network.json
// (docs/web_format.md, "Learners"). An update is one program: forward pass, losses, gradients and optimiser.

import { EngineError, InputError } from "./errors.js";
import { inputsByPort, packedRows, rowsOf } from "./ports.js";
import { safetensors } from "./safetensors.js";

/** The learner of a loaded network. */
export default class Learner {
  #model;
  #about;
  #first = null;
  #turn = Promise.resolve();

  /** @param {object} model what `load` returned */
  constructor(model) {
    if (!model.info.learner) throw new InputError("This network does not learn in a page.", "Export it with --learn.");
    this.#model = model;
    this.#about = model.info.learner;
    this.rate = this.#about.rate;
    this.updates = 0;
  }

  /** How many samples an update may have. */
  get batches() {
    return this.#about.updates.map(one => one.rows);
  }

  /**
   * Make one update, and return the loss before it.
   * @param inputs samples, as `run` takes them
   * @param targets for each sample a class, or the numbers that should come out; an object by output if several have losses
   * @throws {InputError} there is no update of so many samples, or the targets do not fit
   */
  update(inputs, targets, { rate = this.rate } = {}) {
    return this.#alone(() => this.#update(inputs, targets, rate));
  }

  /** Return to the weights before the first update. */
  reset() {
    return this.#alone(async () => {
      for (const [name, bytes] of this.#first ?? []) await this.#model.write(name, new Uint8Array(bytes));
      this.updates = 0;
    });
  }

  /** The present weights: {name: {dtype, shape, data}}. */
  weights() {
    return this.#alone(() => this.#weights());
  }

  /** The present weights as a .safetensors file, which `volumetric.load_state` reads. */
  async safetensors() {
    return safetensors(await this.weights(), { format: "volumetric.web", updates: String(this.updates) });
  }

  async #update(inputs, targets, rate) {
    const { inputs: ports, targets: expected, updates, knobs, noise, facts, losses } = this.#about;
    const x = inputsByPort(ports, inputs), y = inputsByPort(expected, targets);
    const rows = rowsOf(ports, x);
    for (const [named, all, kind] of [[x, ports, "input"], [y, expected, "targets of"]]) {
      const missing = Object.keys(all).find(name => !named.has(name));
      if (missing !== undefined) throw new InputError(`The ${kind} ${missing} is missing.`);
    }
    if (rowsOf(expected, y) !== rows) throw new InputError(`There are ${rows} samples and ${rowsOf(expected, y)} targets.`);
    for (const [name, ids] of y) this.#checkClasses(name, ids);
    const update = updates.find(one => one.rows === rows);
    if (!update) throw new InputError(`An update takes ${this.batches.join(" or ")} samples, not ${rows}.`, "Export the network with other batches.");
    await this.#keepFirst();
    const model = this.#model;
    for (const [all, values] of [[ports, x], [expected, y]]) for (const [name, numbers] of values) void model.write(all[name].buffer, packedRows(all[name], numbers, 0, rows));
    void model.write(knobs, Float32Array.of(rate, update.scale, ...hostNumbers(this.#about.optimiser, this.updates + 1)));
    if (noise) void model.write(noise.buffer, Uint32Array.from(noiseKey(noise.seed, this.updates)));
    await model.submit(update.program);
    const numbers = new Float32Array(await model.read(facts, { bytes: 4 * (losses.length + 2) }));
    if (!numbers.at(-1)) {
      await model.write(facts, new Float32Array(losses.length + 2).fill(1));
      throw new EngineError(`Update ${this.updates + 1} would make a weight that is not finite; no weight has changed.`, "Use a lower rate.");
    }
    this.updates++;
    return losses.reduce((sum, _, i) => sum + numbers[i] * update.factors[i], 0);
  }

  #checkClasses(name, ids) {
    const { classes } = this.#about.targets[name];
    const wrong = classes === undefined ? undefined : ids.find(id => id < 0 || id >= classes);
    if (wrong !== undefined) throw new InputError(`${wrong} is not a class of ${name}: they are 0 to ${classes - 1}.`);
  }

  /** Remember the state before the first update, for `reset`. */
  async #keepFirst() {
    this.#first ??= await Promise.all(this.#about.states.map(async name => [name, await this.#model.read(name)]));
  }

  async #weights() {
    const weights = {};
    for (const [name, { buffer, offset, dtype, shape }] of Object.entries(this.#about.weights)) {
      const count = shape.reduce((a, b) => a * b, 1);
      weights[name] = { dtype, shape, data: new Float32Array(await this.#model.read(buffer, { offset, bytes: 4 * count })) };
    }
    return weights;
  }

  #alone(work) {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }
}

/** The optimiser's two numbers for an update, from 1: `volumetric.formula.optimisers`, the field `knobs`. */
function hostNumbers({ knobs, beta1, beta2, values }, step) {
  if (knobs === "bias corrections") return [1 / (1 - beta1 ** step), 1 / Math.sqrt(1 - beta2 ** step)];
  return knobs === "first" ? [Number(step === 1), 0] : values;
}

/** The key of the random numbers of an update: `volumetric.graph.numeric.counter_noise.noise_key`, by PCG4D. */
export function noiseKey(seed, update) {
  const whole = BigInt(seed);
  let [x, y, z, w] = [Number(whole & 0xffffffffn), Number((whole >> 32n) & 0xffffffffn), update, 0].map(v => (Math.imul(v, 1664525) + 1013904223) | 0);
  for (const last of [false, true]) {
    x = (x + Math.imul(y, w)) | 0;
    y = (y + Math.imul(z, x)) | 0;
    z = (z + Math.imul(x, y)) | 0;
    w = (w + Math.imul(y, z)) | 0;
    if (!last) [x, y, z, w] = [x, y, z, w].map(v => v ^ (v >>> 16));
  }
  return [x >>> 0, y >>> 0];
}
