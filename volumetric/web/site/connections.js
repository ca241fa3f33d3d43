// How a page reaches the engine: through a worker, or directly in its own thread.

import { EngineError, errorData, errorOf } from "./errors.js";
import { UrlSource } from "./fetch_pieces.js";
import { openMachine } from "./machine.js";
import { CallerSource } from "./sources.js";

/** The engine in a worker. */
export class WorkerConnection {
  #worker;
  #source;
  #calls = new Map();
  #number = 0;
  #failure = null;

  /**
   * @param {string} address of worker.js
   * @param {object | null} source of the caller
   */
  constructor(address, source) {
    this.#source = source;
    this.#worker = new Worker(address, { type: "module", name: "volumetric" });
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = event => {
      event.preventDefault();
      this.fail(new EngineError(`The engine's worker does not run: ${event.message || "its script cannot be loaded"}.`, "Serve engine.js and the files beside it from one folder."));
    };
  }

  /** Call a method; `onEvent` gets what it reports meanwhile. */
  call(method, args, onEvent = () => {}, signal = null, transfer = []) {
    if (this.#failure) return Promise.reject(this.#failure);
    const call = ++this.#number;
    return new Promise((resolve, reject) => {
      const cancel = () => this.#worker.postMessage({ cancel: call });
      const end = () => {
        this.#calls.delete(call);
        signal?.removeEventListener("abort", cancel);
      };
      this.#calls.set(call, {
        onEvent,
        resolve: result => (end(), resolve(result)),
        reject: error => (end(), reject(error)),
      });
      this.#worker.postMessage({ call, method, args }, transfer);
      signal?.addEventListener("abort", cancel);
      if (signal?.aborted) cancel();
    });
  }

  /** End the worker; all calls fail. */
  fail(error) {
    this.#failure ??= error;
    this.#worker.terminate();
    for (const { reject } of [...this.#calls.values()]) reject(error);
  }

  async #receive(data) {
    if (data.ask) {
      try {
        this.#worker.postMessage({ answer: data.ask, result: await this.#source[data.method]?.(...data.args) });
      } catch (error) {
        this.#worker.postMessage({ answer: data.ask, error: errorData(error) });
      }
      return;
    }
    const call = this.#calls.get(data.call);
    if (!call) return;
    if (data.error) call.reject(errorOf(data.error));
    else if (Object.hasOwn(data, "event")) call.onEvent(data.event);
    else call.resolve(data.result);
  }
}

/** The engine in the page's own thread. */
export class DirectConnection {
  #source;
  #machine = null;
  #failure = null;

  constructor(source) {
    this.#source = source;
  }

  async call(method, args, onEvent = () => {}, signal = null) {
    if (this.#failure) throw this.#failure;
    const cancel = signal ?? { aborted: false };
    if (method !== "load") return this.#machine.call(method, args, onEvent, cancel);
    const [{ url, ...options }] = args;
    const source = url === null ? new CallerSource(this.#source) : new UrlSource(url, { signal });
    this.#machine = await openMachine(source, options, onEvent, cancel);
    return this.#machine.info;
  }

  fail(error) {
    this.#failure ??= error;
    this.#machine?.device.destroy();
  }
}
