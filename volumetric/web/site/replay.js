// Programs: lists of dispatches and copies that are bound once and replayed.

import { FormatError } from "./errors.js";
import { isWhole, wrong } from "./network_file.js";

const ROWS = ["total", "singles", "multi_rows", "blocks", "pieces"];
const MOST_GROUPS = 65535;

/** The programs of a variant, each bound when it is first asked for. */
export class Programs {
  #device;
  #variant;
  #buffers;
  #pipelines;
  #groups = new Map();
  #bound = new Map();

  constructor(device, variant, buffers, pipelines) {
    this.#device = device;
    this.#variant = variant;
    this.#buffers = buffers;
    this.#pipelines = pipelines;
  }

  /** Names of all programs. */
  get names() {
    return Object.keys(this.#variant.programs);
  }

  /** Whether there is a program of a name. */
  has(name) {
    return Object.hasOwn(this.#variant.programs, name);
  }

  /** Compile and bind some programs; raises `FormatError`. */
  async prepare(names) {
    await Promise.all(names.map(name => {
      if (!this.#bound.has(name)) this.#bound.set(name, this.#bind(name));
      return this.#bound.get(name);
    }));
    for (const name of names) this.#bound.set(name, await this.#bound.get(name));
  }

  /** Record a program that is prepared, for a call of so many rows. */
  record(encoder, name, rows = null) {
    const steps = this.#bound.get(name);
    for (const step of steps) {
      if (step.copies) {
        for (const [source, from, target, to, bytes] of step.copies) encoder.copyBufferToBuffer(source, from, target, to, bytes);
        continue;
      }
      const pass = encoder.beginComputePass();
      let last = null;
      for (const { pipeline, group, grid, scale } of step.dispatches) {
        const y = scale && rows ? Math.ceil((rows[scale[0]] * scale[1]) / scale[2]) + scale[3] : grid[1];
        if (y === 0) continue;
        if (pipeline !== last) pass.setPipeline(pipeline);
        last = pipeline;
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(grid[0], y, grid[2]);
      }
      pass.end();
    }
  }

  async #bind(name) {
    if (!this.has(name)) throw wrong(`there is no program ${JSON.stringify(name)}`);
    const steps = this.#variant.programs[name];
    if (!Array.isArray(steps)) throw wrong(`program ${JSON.stringify(name)} is not a list`);
    this.#device.pushErrorScope("validation");
    let bound;
    try {
      bound = steps.map(step => (step.copies ? { copies: step.copies.map(copy => this.#copy(copy)) } : { dispatches: step.dispatches.map(one => this.#dispatch(one)) }));
    } catch (error) {
      void this.#device.popErrorScope();
      throw error instanceof FormatError ? error : wrong(`program ${JSON.stringify(name)} is not valid (${error.message})`);
    }
    const problem = this.#device.popErrorScope();
    await Promise.all(bound.flatMap(step => (step.dispatches ?? []).map(async one => {
      one.pipeline = await this.#pipelines.pipeline(one.pipeline);
    })));
    const refused = await problem;
    if (refused) throw wrong(`the browser refuses program ${JSON.stringify(name)}: ${refused.message}`);
    return bound;
  }

  #copy([source, from, target, to, bytes]) {
    if (![from, to, bytes].every(value => isWhole(value) && value % 4 === 0)) throw wrong("a copy is not valid");
    return [this.#buffer(source), from, this.#buffer(target), to, bytes];
  }

  #dispatch([pipeline, entries, grid, scale]) {
    const fits = Array.isArray(grid) && grid.length === 3 && grid.every(count => isWhole(count, 0, MOST_GROUPS));
    if (!fits || (scale && !(ROWS.includes(scale[0]) && isWhole(scale[1]) && isWhole(scale[2], 1) && isWhole(scale[3])))) throw wrong("a dispatch is not valid");
    const key = `${pipeline} ${JSON.stringify(entries)}`;
    if (!this.#groups.has(key)) {
      this.#groups.set(key, this.#device.createBindGroup({
        layout: this.#pipelines.layout(pipeline),
        entries: entries.map(([binding, buffer, offset, size]) => ({
          binding, resource: { buffer: this.#buffer(buffer), ...(offset === undefined || offset === null ? {} : { offset, size }) },
        })),
      }));
    }
    return { pipeline, group: this.#groups.get(key), grid, scale };
  }

  #buffer(number) {
    const buffer = this.#buffers[number];
    if (!buffer) throw wrong(`there is no buffer ${number}`);
    return buffer;
  }
}
