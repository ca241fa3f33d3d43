// Networks of volumetric in a browser, on WebGPU. `load` is the entry; `engine.d.ts` has the types, docs/web.md the guide.

import { DirectConnection, WorkerConnection } from "./connections.js";
import { EngineError, GenerationError, InputError, NoWebGPUError } from "./errors.js";

export {
  DamagedFileError, DeviceLimitError, DeviceLostError, EngineError, FetchError, FormatError, GenerationError, InputError, NoWebGPUError,
} from "./errors.js";

const TEMPLATE_PATIENCE = 10_000; // ms in which a chat template must be written

const absolute = address => new URL(address, globalThis.document?.baseURI ?? globalThis.location?.href);
const files = () => import(new URL("stored_files.js", import.meta.url).href);

/** What is stored of models that were loaded from servers. */
export const storedModels = async () => (await files()).storedModels();
/** Drop what is stored of a model; returns its bytes. */
export const forgetModel = async address => (await files()).forgetModel(absolute(address).href);

/**
 * Load a network.
 * @param {string | URL | Blob | object} source address of its folder, network.json or GGUF file; a GGUF file; or an object with
 *   json(), piece(i), file(name)
 * @param {object} options see `engine.d.ts`
 */
export async function load(source, { onProgress = () => {}, signal = null, worker = true, template, addresses = {}, modules = null, hide = [] } = {}) {
  signal?.throwIfAborted();
  const file = source instanceof Blob ? source : null;
  const own = !file && typeof source === "object" && !(source instanceof URL);
  if (own && !(typeof source.json === "function" && typeof source.piece === "function")) throw new InputError("A source needs json() and piece(i).");
  const url = own || file ? null : absolute(source);
  const templates = file || (url && (template || /\.gguf$/i.test(url.pathname))) ? [template ?? "./"].flat().map(one => absolute(one).href) : null;
  const open = async threaded => {
    const address = threaded && !modules ? addresses["worker.js"] ?? new URL("./worker.js", import.meta.url).href : "";
    const connection = threaded ? new WorkerConnection(address, own ? source : null, modules) : new DirectConnection(own ? source : null);
    try {
      return new Model(connection, addresses, await connection.call("load", [{ url: url?.href, own, file, templates, addresses, hide }], onProgress, signal));
    } catch (error) {
      connection.fail(error);
      signal?.throwIfAborted();
      if (threaded && error instanceof NoWebGPUError && globalThis.navigator?.gpu) return open(false); // workers have none
      throw error;
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

  chat(messages, options = {}) {
    return this.#tokens(messages, options);
  }

  generate(prompt, options = {}) {
    return this.#tokens(prompt, options);
  }

  logits(prompt) {
    return this.#connection.call("logits", [prompt]);
  }

  encode(prompt, template = {}) {
    return this.#connection.call("encode", [prompt, template]);
  }

  decode(ids) {
    return this.#connection.call("decode", [ids]);
  }

  embed(texts, options = {}) {
    return this.#connection.call("embed", [texts, options]);
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
    return new (await import(this.#addresses[name] ?? new URL(name, import.meta.url).href)).default(this, options);
  }

  write(buffer, values, offset = 0) {
    return this.#connection.call("write", [buffer, values, offset]);
  }

  submit(...programs) {
    return this.#connection.call("submit", [programs]);
  }

  read(buffer, { offset = 0, bytes = undefined } = {}) {
    return this.#connection.call("read", [buffer, offset, bytes]);
  }

  async close() {
    this.#connection.fail(new EngineError("The network is closed.", "Load it again."));
  }

  async *#tokens(prompt, { signal = null, ...options } = {}) {
    signal?.throwIfAborted();
    const controller = new AbortController();
    const stop = () => controller.abort();
    signal?.addEventListener("abort", stop);
    const arrived = [];
    let wake = () => {}, ended = false, failure = null;
    const patience = setTimeout(() => this.#connection.fail(new GenerationError("The chat template does not end.", "The model's template is at fault: export it with another one.")), TEMPLATE_PATIENCE);
    const call = this.#connection.call("generate", [prompt, options], event => {
      if (event.event === "prompt") clearTimeout(patience);
      else arrived.push(new Token(event));
      wake();
    }, controller.signal);
    call.catch(error => {
      failure = error;
    }).finally(() => {
      clearTimeout(patience);
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
