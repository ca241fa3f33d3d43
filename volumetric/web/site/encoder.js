// Encoders: texts to vectors, or to scores of classes.

import { InputError } from "./errors.js";

export class Encoder {
  #machine;
  #about;
  #texts;

  constructor(machine, texts) {
    this.#machine = machine;
    this.#about = machine.network.encoder;
    this.#texts = texts;
  }

  /** Return the vector of a text. */
  async embed(text, { prompt = this.#about.default_prompt ?? null } = {}) {
    const { prompts = {}, tokens: most, pooling = ["mean"], normalise, lower_case: lower } = this.#about;
    if (typeof text !== "string") throw new InputError("A text to embed must be a string.");
    if (prompt !== null && !Object.hasOwn(prompts, prompt)) throw new InputError(`There is no prompt ${JSON.stringify(prompt)}.`, `There are: ${Object.keys(prompts).join(", ") || "none"}.`);
    const whole = (prompt === null ? "" : prompts[prompt]) + text;
    const ids = this.#texts.encode(lower ? whole.toLowerCase() : whole);
    if (ids.length > most) throw new InputError(`The text has ${ids.length} tokens; the model takes ${most}.`, "Split it into shorter parts.");
    const rows = await this.rows(ids);
    const width = rows.length / ids.length;
    const vector = Float32Array.from(pooling.flatMap(how => Array.from(pooled(rows, width, how))));
    return normalise ? unit(vector) : vector;
  }

  /** Return the output rows of some ids. */
  async rows(ids) {
    const { inputs, outputs } = this.#machine.network;
    const values = Object.fromEntries(Object.keys(inputs).map(name => [name, name === "tokens" ? Int32Array.from(ids) : new Int32Array(ids.length)]));
    const result = await this.#machine.calls.run(values);
    return result[Object.keys(outputs)[0]];
  }
}

/** One vector of rows. */
function pooled(rows, width, how) {
  const count = rows.length / width;
  if (how === "cls") return rows.subarray(0, width);
  if (how === "last") return rows.subarray((count - 1) * width);
  const vector = new Float32Array(width);
  for (let i = 0; i < width; i++) {
    let sum = 0, most = -Infinity;
    for (let row = 0; row < count; row++) {
      sum += rows[row * width + i];
      most = Math.max(most, rows[row * width + i]);
    }
    vector[i] = how === "max" ? most : sum / count;
  }
  return vector;
}

function unit(vector) {
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length ? vector.map(value => value / length) : vector;
}
