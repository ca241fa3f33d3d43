// Language models: prompts in pieces of several rows, then token after token.

import { controlWords, gridRows } from "./control_block.js";
import { InputError } from "./errors.js";
import { isWhole } from "./network_file.js";
import { freshSeed } from "./random.js";
import { samplingParams, shown } from "./sampling.js";
import { StopMatcher } from "./stop_texts.js";
import { TokenLoop } from "./token_loop.js";

const EVEN_GREEDY = { repetition_penalty: "repetitionPenalty", max_new_tokens: "maxTokens" };
const NAMES = { temperature: "temperature", top_k: "topK", top_p: "topP", min_p: "minP", ...EVEN_GREEDY };

/** What the model's files say of sampling; most of it only counts with do_sample, as in transformers. */
function modelDefaults(said = {}) {
  const names = said.do_sample ? NAMES : EVEN_GREEDY;
  const stated = Object.entries(names).filter(([name]) => typeof said[name] === "number");
  return { ...(said.do_sample ? { temperature: 1 } : {}), ...Object.fromEntries(stated.map(([name, own]) => [own, said[name]])) };
}

/** Items of an array, also a typed one. */
function listOf(value, rule) {
  if (!Array.isArray(value) && !ArrayBuffer.isView(value)) throw new InputError(rule);
  return Array.from(value);
}

export class Language {
  #machine;
  #about;
  #fed = []; // ids whose rows the network's states hold
  #busy = Promise.resolve();

  /**
   * @param {import("./machine.js").Machine} machine
   * @param {typeof import("./text.js")} text the module
   * @param {import("./text.js").Texts} texts
   */
  constructor(machine, text, texts) {
    this.#machine = machine;
    this.#about = machine.network.language;
    this.text = text;
    this.texts = texts;
  }

  /** Compile what a first answer needs. */
  async prepare() {
    const { token, picks, body } = this.#about;
    await this.#machine.programs.prepare([token, picks.greedy, ...body.map(one => one.program)]);
  }

  /** Return the ids of a prompt: a text, ids, or messages. */
  encode(prompt, template = {}) {
    if (typeof prompt === "string") return this.texts.encode(prompt);
    const items = listOf(prompt, "A prompt is a text, a list of token ids, or a list of messages.");
    return items.some(item => typeof item === "object") ? this.texts.encodeChat(items, template) : this.#ids(items);
  }

  /** Return the text of ids. */
  decode(ids) {
    return this.texts.decode(this.#ids(listOf(ids, "decode() takes a list of token ids.")));
  }

  /**
   * Generate; calls `emit` with each token. Generations take turns: a second one waits for the first.
   * @param {{aborted: boolean}} signal
   */
  generate(prompt, options, emit, signal) {
    let params, ids;
    try {
      params = this.#params(options);
      ids = this.#checkIds(this.encode(prompt, options.template));
    } catch (error) {
      return Promise.reject(error);
    }
    emit({ event: "prompt" });
    const turn = this.#busy.then(() => this.#generate(ids, params, emit, signal));
    this.#busy = turn.catch(() => {
      this.#fed = [];
    });
    return turn;
  }

  /** Return the logits behind the last token of a prompt. */
  async logits(prompt, emit) {
    const ids = this.#checkIds(this.encode(prompt));
    emit({ event: "prompt" });
    const turn = this.#busy.then(async () => {
      await this.#feed(ids.slice(0, -1), { aborted: false });
      const loop = new TokenLoop(this.#machine, samplingParams({}, {}), ids);
      await loop.prepare();
      const logits = await loop.logitsOf(ids.at(-1), ids.length - 1);
      this.#fed.push(ids.at(-1));
      return logits;
    });
    this.#busy = turn.catch(() => {});
    return turn;
  }

  /** Ids of tokens as numbers. */
  #ids(items) {
    const { vocabulary } = this.#about;
    return items.map(item => {
      const id = typeof item === "bigint" ? Number(item) : item;
      if (!isWhole(id, 0, vocabulary - 1)) throw new InputError(`There is no token ${shown(item)}; the model has tokens 0 to ${vocabulary - 1}.`);
      return id;
    });
  }

  #checkIds(ids) {
    const { context } = this.#about;
    if (!ids.length) throw new InputError("The prompt is empty.", "Pass some text, or the ids of at least one token.");
    this.#ids(ids);
    if (ids.length > context) throw new InputError(`The prompt has ${ids.length} tokens; the context has room for ${context}.`, "Shorten it, or start a new conversation.");
    return ids;
  }

  #params(options) {
    const params = samplingParams(options, modelDefaults(this.#about.defaults));
    params.seed ??= freshSeed();
    return params;
  }

  async #generate(ids, params, emit, signal) {
    const about = this.#about;
    if (signal.aborted) return;
    const loop = new TokenLoop(this.#machine, params, ids);
    await loop.prepare();
    const began = performance.now();
    const cached = await this.#feed(ids.slice(0, -1), signal);
    if (signal.aborted) return;
    const room = Math.min(params.maxTokens, about.context - ids.length + 1);
    const ends = new Set(about.eos ?? []);
    const decoder = new this.text.TextStream(this.texts), stops = new StopMatcher(params.stop);
    let first = 0, count = 0;
    this.#fed.push(ids.at(-1));
    for await (const id of loop.run(ids.at(-1), ids.length - 1, room)) {
      count += 1;
      first ||= performance.now();
      const ended = ends.has(id);
      let [text, stopped] = stops.push(ended ? "" : decoder.push(id));
      const finishReason = ended || stopped ? "stop" : count >= room ? "length" : null;
      if (finishReason && !stopped) text += stops.push(decoder.flush())[0] + stops.flush();
      const token = { event: "token", index: count - 1, id, text, finishReason };
      if (finishReason) {
        token.stats = {
          promptTokens: ids.length, cachedTokens: cached, tokens: count, seed: params.temperature ? params.seed : null,
          firstTokenSeconds: (first - began) / 1e3, seconds: (performance.now() - first) / 1e3,
        };
      }
      emit(token);
      if (finishReason || signal.aborted) break;
      this.#fed.push(id);
    }
    if (about.rewinds !== true) this.#fed = []; // tokens in flight have moved states that cannot go back
  }

  /** Feed all tokens before the last; returns how many were there from the generation before. */
  async #feed(ids, signal) {
    const machine = this.#machine, { control } = machine.network.calls;
    const { body, token } = this.#about;
    const sizes = [...body].sort((a, b) => a.rows - b.rows);
    let at = 0;
    while (at < ids.length && ids[at] === this.#fed[at]) at++;
    if (at < this.#fed.length && this.#about.rewinds !== true) at = 0;
    const cached = at;
    this.#fed.length = at;
    while (at < ids.length) {
      if (signal.aborted) return cached;
      const left = ids.length - at;
      const part = sizes.find(one => one.rows === left || (one.rows > left && !one.exact)) ?? sizes.filter(one => one.rows <= left).at(-1);
      const single = !part || left === 1;
      const rows = single ? 1 : Math.min(left, part.rows), program = single ? token : part.program;
      await machine.programs.prepare([program]);
      machine.write(machine.network.inputs.tokens.buffer, Int32Array.from(ids.slice(at, at + rows)));
      machine.write(control.buffer, controlWords(control, at, rows));
      machine.submit(program, gridRows(control, rows));
      this.#fed.push(...ids.slice(at, at + rows));
      at += rows;
      await machine.device.queue.onSubmittedWorkDone(); // lets a cancellation come through
      machine.check();
    }
    return cached;
  }
}
