// How a page reaches the engine: through a worker, or directly in its own thread.

import { EngineError, errorData, errorOf } from "./errors.js";
import { openMachine } from "./machine.js";

/** The engine in a worker. */
export class WorkerConnection {
  #worker;
  #source;
  #calls = new Map();
  #number = 0;
  #failure = null;
  #lose;
  /** A promise of the error, if the GPU is lost. */
  lost = new Promise(resolve => {
    this.#lose = resolve;
  });

  /**
   * @param {string | Worker} worker address of worker.js, or what runs it
   * @param {object | null} source of the caller
   */
  constructor(worker, source) {
    this.#source = source;
    this.#worker = typeof worker === "string" ? startWorker(worker) : worker;
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
    if (data.lost) this.#lose(errorOf(data.lost));
    const call = this.#calls.get(data.call);
    if (!call) return;
    if (data.error) call.reject(errorOf(data.error));
    else if (Object.hasOwn(data, "event")) call.onEvent(data.event);
    else call.resolve(data.result);
  }
}

/** Start a worker at an address; one of another host starts as a script that imports it. */
function startWorker(address) {
  const own = address.startsWith("blob:") || new URL(address).origin === globalThis.location?.origin;
  const script = own ? address : URL.createObjectURL(new Blob([`import ${JSON.stringify(address)};`], { type: "text/javascript" }));
  return new Worker(script, { type: "module", name: "volumetric" });
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
    if (method !== "load") return this.#machine.call(method, args, onEvent, signal ?? { aborted: false });
    this.#machine = await openMachine(args[0], this.#source, onEvent, signal);
    return this.#machine.info;
  }

  get lost() {
    return this.#machine.lost;
  }

  fail(error) {
    this.#failure ??= error;
    this.#machine?.device.destroy();
  }
}
