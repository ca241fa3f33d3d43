// Pipelines of a variant: each compiled once, all that are asked for in parallel.

import { lostError } from "./buffers.js";
import { FormatError } from "./errors.js";
import { isWhole, wrong } from "./network_file.js";

const TYPES = { read: "read-only-storage", read_write: "storage", uniform: "uniform" };

/** Compiles pipelines of a variant when they are first asked for. */
export class Pipelines {
  #device;
  #texts;
  #variant;
  #modules = new Map();
  #layouts = new Map();
  #pipelines = new Map();

  constructor(device, texts, variant) {
    this.#device = device;
    this.#texts = texts;
    this.#variant = variant;
  }

  /** Return the layout of a pipeline's bind group. */
  layout(number) {
    const { bindings } = this.#about(number);
    const key = JSON.stringify(bindings);
    if (!this.#layouts.has(key)) {
      const entries = bindings.map(([binding, kind]) => {
        if (!Object.hasOwn(TYPES, kind)) throw wrong(`unknown kind of binding ${JSON.stringify(kind)}`);
        return { binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: TYPES[kind] } };
      });
      this.#layouts.set(key, this.#device.createBindGroupLayout({ entries }));
    }
    return this.#layouts.get(key);
  }

  /** Return a promise of a pipeline; raises `FormatError` if the browser refuses its kernel. */
  pipeline(number) {
    if (!this.#pipelines.has(number)) this.#pipelines.set(number, this.#compile(number));
    return this.#pipelines.get(number);
  }

  async #compile(number) {
    const { label, module } = this.#about(number);
    try {
      return await this.#device.createComputePipelineAsync({
        label: String(label),
        layout: this.#device.createPipelineLayout({ bindGroupLayouts: [this.layout(number)] }),
        compute: { module: this.#module(module), entryPoint: "main" },
      });
    } catch (error) {
      const gone = await Promise.race([this.#device.lost, new Promise(resolve => setTimeout(resolve, 500, null))]);
      if (gone) throw lostError(gone.message);
      throw new FormatError(`This browser's GPU refuses the kernel “${label}”: ${error.message}`, "Update the browser and the GPU's driver, or export the network again with a newer volumetric.");
    }
  }

  #module(number) {
    if (!this.#modules.has(number)) this.#modules.set(number, this.#device.createShaderModule({ code: this.#texts[number] }));
    return this.#modules.get(number);
  }

  #about(number) {
    const about = this.#variant.pipelines?.[number];
    if (!about || !isWhole(about.module, 0, this.#texts.length - 1) || !Array.isArray(about.bindings)) throw wrong(`there is no valid pipeline ${number}`);
    return about;
  }
}
