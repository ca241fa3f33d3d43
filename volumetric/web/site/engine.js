// Networks of volumetric in a browser, on WebGPU. `load` is the entry; `engine.d.ts` has the types, docs/web.md the guide.

import { addressOf, checkMessages, optionsOf } from "./arguments.js";
import { DirectConnection, WorkerConnection, WorkerError } from "./connections.js";
import { EngineError, GenerationError, InputError, NoWebGPUError } from "./errors.js";
import { imported } from "./lazy_modules.js";

export {
  DamagedFileError, DeviceLimitError, DeviceLostError, EngineError, FetchError, FormatError, GenerationError, InputError, NoWebGPUError,
} from "./errors.js";

const PROMPT_PATIENCE = 10_000; // ms in which a prompt must be written and encoded
const LOAD = ["onProgress", "signal", "worker", "template", "addresses", "modules", "hide"];
const GENERATE = ["maxTokens", "temperature", "topK", "topP", "minP", "repetitionPenalty", "seed", "stop", "template", "signal"];

/** What is stored of networks that were loaded from servers. */
export const storedModels = async () => (await imported("stored_files.js")).storedModels();
/** Drop what is stored of a network; returns its bytes. */
export const forgetModel = async address => (await imported("stored_files.js")).forgetModel(addressOf(address));

/**
 * Load a network.
 * @param {string | URL | Blob | object} source address of its folder, network.json or GGUF file; a GGUF file; or an object with
 *   json(), piece(i), file(name)
 * @param {object} options see `engine.d.ts`
 */
export async function load(source, options) {
  const { onProgress = () => {}, signal = null, worker = true, template, addresses = {}, modules = null, hide = [] } = optionsOf("load", options, LOAD);
  if (typeof onProgress !== "function") throw new InputError("onProgress must be a function.");
  signal?.throwIfAborted();
  const file = source instanceof Blob ? source : null, url = file ? null : addressOf(source);
  const fromGguf = file || (url && (template || /\.gguf$/i.test(new URL(url).pathname)));
  const templates = fromGguf ? [template ?? "./"].flat().map(addressOf) : null;
  const report = progress => {
    try {
      onProgress(progress);
    } catch (error) {
      reportError(error); // as one of a listener: it ends nothing
    }
  };
  const open = async threaded => {
    let connection = null;
    try {
      connection = threaded ? new WorkerConnection(addresses["worker.js"], source, modules) : new DirectConnection(source);
      return new Model(connection, addresses, await connection.call("load", [{ url, file, templates, addresses, hide }], report, signal));
    } catch (error) {
      connection?.fail(error);
      signal?.throwIfAborted();
      const without = error instanceof WorkerError || (error instanceof NoWebGPUError && globalThis.navigator?.gpu); // workers have none
      if (!threaded || !without) throw error;
      console.warn(`${error.sentence} The network runs in the page's own thread.`);
      return open(false);
    }
  };
  return open(worker && typeof Worker === "function");
}

/** A loaded network; `engine.d.ts` says what its methods do. */
class Model {
  #connection;
  #addresses;

  constructor(connection, addresses, info) {
    this.#connection = connection;
    this.#addresses = addresses;
    this.info = info;
  }

  get lost() {
    return this.#connection.lost;
  }

  run(inputs) {
    return this.#connection.call("run", [inputs]);
  }

  stream() {
    return new Stream(this.#connection);
  }

  chat(messages, options) {
    return this.#tokens("chat", messages, options);
  }

  generate(prompt, options) {
    return this.#tokens("generate", prompt, options);
  }

  logits(prompt) {
    return this.#written("logits", [prompt]);
  }

  encode(prompt, template = {}) {
    return this.#written("encode", [prompt, template]);
  }

  decode(ids) {
    return this.#connection.call("decode", [ids]);
  }

  async embed(texts, options) {
    optionsOf("embed", options, ["prompt"]); // null is a prompt: none
    return this.#connection.call("embed", [texts, options ?? {}]);
  }

  classify(texts) {
    return this.#connection.call("classify", [texts]);
  }

  learner() {
    return this.#open("learner.js");
  }

  population(options) {
    return this.#open("neat/population.js", options);
  }

  async #open(name, options) {
    return new (await imported(name, this.#addresses)).default(this, options);
  }

  write(buffer, values, offset = 0) {
    return this.#connection.call("write", [buffer, values, offset]);
  }

  submit(...programs) {
    return this.#connection.call("submit", [programs]);
  }

  async read(buffer, range) {
    const { offset, bytes } = optionsOf("read", range, ["offset", "bytes"]);
    return this.#connection.call("read", [buffer, offset, bytes]);
  }

  async close() {
    this.#connection.fail(new EngineError("The network is closed.", "Load it again."));
  }

  /** Call what encodes a prompt; if that does not end, the network does. */
  #written(method, args, onEvent = () => {}, signal = null) {
    const patience = setTimeout(() => this.#connection.fail(new GenerationError("The chat template or the tokenizer does not end.", "Those of the model are at fault: export it with others. Or the prompt is far too long.")), PROMPT_PATIENCE);
    return this.#connection.call(method, args, event => {
      if (event.event === "prompt") clearTimeout(patience);
      else onEvent(event);
    }, signal).finally(() => clearTimeout(patience));
  }

  async *#tokens(method, prompt, passed) {
    const { signal = null, ...options } = optionsOf(method, passed, GENERATE);
    if (method === "chat") checkMessages(prompt);
    signal?.throwIfAborted();
    const controller = new AbortController();
    const stop = () => controller.abort();
    signal?.addEventListener("abort", stop);
    const arrived = [];
    let wake = () => {}, ended = false, failure = null;
    const call = this.#written("generate", [prompt, options], event => {
      arrived.push(new Token(event));
      wake();
    }, controller.signal);
    call.catch(error => {
      failure = error;
    }).finally(() => {
      ended = true;
      wake();
    });
    try {
      for (;;) {
        signal?.throwIfAborted();
        if (arrived.length) yield arrived.shift();
        else if (failure) throw failure;
        else if (ended) return;
        else await new Promise(resolve => {
          wake = resolve;
        });
      }
    } finally {
      signal?.removeEventListener("abort", stop);
      if (!ended) {
        controller.abort();
        await call.catch(() => {});
      }
    }
  }
}

/** A token with its text. */
class Token {
  constructor({ index, id, text, finishReason, stats }) {
    Object.assign(this, { index, id, text, finishReason, stats: stats ?? null });
  }

  toString() {
    return this.text;
  }
}

/** A stream of a network that remembers. */
class Stream {
  #connection;
  #number;

  constructor(connection) {
    this.#connection = connection;
    this.#number = connection.call("stream", []);
    this.#number.catch(() => {}); // reported by the first step
  }

  /** Pass a row (or several) and return the outputs. */
  async step(inputs) {
    return this.#connection.call("step", [await this.#number, inputs]);
  }

  /** Forget what the stream has seen. */
  async reset() {
    return this.#connection.call("reset", [await this.#number]);
  }

  /** Free what the stream holds. */
  async close() {
    return this.#connection.call("closeStream", [await this.#number]);
  }
}
