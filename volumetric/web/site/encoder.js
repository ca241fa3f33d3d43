// Encoders: texts to vectors, or to scores of classes, as `volumetric.generate.text_encoder`.

import { controlWords, gridRows } from "./control_block.js";
import { InputError } from "./errors.js";
import { checkControl, checkPort, wrong } from "./network_file.js";
import { packedRows, unpackedRows } from "./ports.js";
import { TextCalls } from "./text_calls.js";

export class Encoder {
  #machine;
  #about;
  #texts;
  #calls;

  constructor(machine, texts) {
    this.#machine = machine;
    this.#about = machine.network.encoder;
    this.#texts = texts;
    this.#calls = new TextCalls(machine);
    for (const [name, { control, input, output }] of Object.entries(this.#about.heads ?? {})) {
      checkControl(control, `encoder.heads.${name}.control`);
      checkPort(input, `encoder.heads.${name}.input`);
      checkPort(output, `encoder.heads.${name}.output`);
    }
  }

  /** Return the ids of a text. */
  encode(text) {
    if (typeof text !== "string") throw new InputError("A text must be a string.");
    const ids = this.#texts.encode(this.#about.lower_case ? text.toLowerCase() : text);
    const most = this.#about.tokens;
    if (ids.length > most) throw new InputError(`The text has ${ids.length} tokens; the model takes ${most}.`, "Split it into shorter parts.");
    return ids;
  }

  /** Return the vector of a text, or of each of several. */
  async embed(texts, { prompt = this.#about.default_prompt ?? null } = {}) {
    const { prompts = {}, pooling, normalise, include_prompt: included, heads = {} } = this.#about;
    if (prompt !== null && !Object.hasOwn(prompts, prompt)) throw new InputError(`There is no prompt ${JSON.stringify(prompt)}.`, `There are: ${Object.keys(prompts).join(", ") || "none"}.`);
    const before = prompt === null ? "" : prompts[prompt];
    const skipped = before && included === false ? this.#promptTokens(before) : 0;
    return this.#each(texts, before, async rows => {
      let vector = pooled(rows, pooling, skipped);
      if (heads.dense) vector = await this.#head(heads.dense, vector);
      return normalise ? unit(vector) : vector;
    });
  }

  /** Return the scores of a text's classes, or of those of each of several. */
  async classify(texts) {
    const head = this.#about.heads?.classify;
    if (!head) throw new InputError("This model has no classes.", "Use embed().");
    return this.#each(texts, "", rows => this.#head(head, pooled(rows, [head.pooling], 0)));
  }

  /** Make something of the rows of one text, or of each of several. */
  async #each(texts, before, make) {
    const list = Array.isArray(texts) ? texts : [texts];
    const ids = list.map(text => this.encode(typeof text === "string" ? before + text : text));
    const results = [];
    for await (const rows of this.#calls.hidden(ids)) results.push(await make(rows));
    return Array.isArray(texts) ? results : results[0];
  }

  /** Tokens of a prompt at the start of a text, without the one that ends a text. */
  #promptTokens(prompt) {
    const alone = this.encode(prompt);
    return alone.length - (alone.at(-1) === this.encode("").at(-1));
  }

  /** Run a network that reads one pooled row. */
  async #head({ program, control, input, output }, vector) {
    const machine = this.#machine;
    await machine.programs.prepare([program]);
    machine.write(input.buffer, packedRows(input, vector, 0, 1));
    machine.write(control.buffer, controlWords(control, 0, 1));
    machine.submit(program, gridRows(control, 1));
    const data = await machine.readback.read([[machine.buffer(output.buffer), 0, output.stride]]);
    machine.check();
    return unpackedRows(output, data, 1);
  }
}

/** One vector of rows, without the first `skipped`; several poolings are concatenated. */
function pooled(rows, modes, skipped) {
  const before = Math.min(skipped, rows.length - 1);
  const counted = rows.slice(before);
  const parts = modes.map(mode => pool(counted, mode, before));
  return Float32Array.from(parts.flatMap(part => Array.from(part)));
}

function pool(rows, mode, before) {
  const n = rows.length;
  const combined = combine => Float32Array.from(rows[0], (_, column) => combine(rows.map(row => row[column])));
  const total = values => values.reduce((sum, value) => sum + value, 0);
  if (mode === "cls") return rows[0];
  if (mode === "lasttoken") return rows.at(-1);
  if (mode === "max") return combined(values => Math.max(...values));
  if (mode === "mean") return combined(values => total(values) / n);
  if (mode === "mean_sqrt_len_tokens") return combined(values => total(values) / Math.sqrt(n));
  if (mode !== "weightedmean") throw wrong(`unknown pooling ${JSON.stringify(mode)}`);
  const weights = rows.map((_, i) => before + 1 + i);
  return combined(values => total(values.map((value, i) => value * weights[i])) / total(weights));
}

function unit(vector) {
  const length = Math.max(Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0)), 1e-12);
  return vector.map(value => value / length);
}
