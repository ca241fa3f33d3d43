// How a page reaches the engine: through a worker, or directly in its own thread.

import { EngineError, InputError, errorData, errorOf } from "./errors.js";
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
   * @param {string | undefined} address of worker.js, if it is not beside this module
   * @param {any} source of the caller, or an address
   * @param {[string, string][] | null} modules name and text of the engine's modules, each after those that it imports
   */
  constructor(address, source, modules = null) {
    this.#source = source;
    try {
      this.#worker = modules ? startWorkerOf(modules) : startWorker(address);
    } catch (error) {
      throw new WorkerError(error.message);
    }
    this.#worker.onmessage = ({ data }) => this.#receive(data);
    this.#worker.onerror = event => {
      event.preventDefault();
      this.fail(new WorkerError(event.message || "its script cannot be loaded"));
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
      try {
        this.#worker.postMessage({ call, method, args }, transfer);
      } catch (error) {
        end();
        throw new InputError(`${method}() cannot hand on what was passed: ${error.message}`, "Pass numbers, texts, arrays and plain objects: no functions, promises or proxies.");
      }
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

/** The engine's worker cannot be started, or has failed. */
export class WorkerError extends EngineError {
  constructor(why) {
    super(`The engine's worker does not run: ${why.replace(/\.$/, "")}.`, "Serve engine.js and the files beside it from one folder, and let the page's policy (CSP) allow it as a worker.");
  }
}

/** Start a worker at an address, or beside this module; one of another host starts as a script that imports it. */
function startWorker(address) {
  const here = import.meta.url, options = { type: "module", name: "volumetric" };
  if (!address && !(here.startsWith("http") && isForeign(here))) return new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "volumetric" });
  const script = address ?? here.replace(/[^/]*$/, "worker.js");
  return new Worker(isForeign(script) ? scriptAddress(`import ${JSON.stringify(script)};`) : script, options);
}

const isForeign = address => !address.startsWith("blob:") && new URL(address).origin !== globalThis.origin;

const scriptAddress = text => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));

/**
 * Start a worker from texts of modules. Pages that are files may start no module, and a worker cannot import their blobs:
 * so a script makes the blobs in the worker, and hands on what arrives meanwhile.
 */
function startWorkerOf(modules) {
  const script = `const early = [], addresses = {};
    onmessage = one => early.push(one);
    for (const [name, text] of ${JSON.stringify(modules)}) {
      const whole = text.replace(/(\\b(?:from|import)\\s*)"(?:\\.|@[a-z]+)\\/([^"]+)"/g, (all, word, other) => word + JSON.stringify(addresses[other]));
      addresses[name] = URL.createObjectURL(new Blob([whole], { type: "text/javascript" }));
    }
    globalThis.ownAddresses = addresses;
    import(addresses["worker.js"]).then(() => early.forEach(one => onmessage(one)), error => setTimeout(() => { throw error; }));`;
  return new Worker(scriptAddress(script), { name: "volumetric" });
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
    if (method !== "load") {
      return this.#machine.call(method, args, onEvent, signal ?? { aborted: false }).catch(error => {
        throw this.#failure ?? error; // what is closed meanwhile is not lost
      });
    }
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
