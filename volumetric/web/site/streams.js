// Streams: networks that remember, step by step. Rows of a sequence, or ticks of a clocked grid.

import { InputError } from "./errors.js";
import { inputsByPort, packedRows, rowsOf, unpackedRows } from "./ports.js";

/** Return a new stream of a network. */
export function openStream(machine) {
  const kind = machine.network.kind;
  if (machine.network.ticks) return new TickStream(machine);
  if (machine.calls && !machine.calls.independent && kind !== "language") return new RowStream(machine);
  throw new InputError(`A network of the kind ${kind} has no stream.`, kind === "language" ? "Use generate() or chat()." : "Use run(): its rows do not depend on each other.");
}

/** Rows of a sequence. */
class RowStream {
  #position = 0;

  constructor(machine) {
    this.machine = machine;
  }

  async step(inputs) {
    const { machine } = this;
    machine.sequences.use(this);
    const rows = rowsOf(machine.network.inputs, inputsByPort(machine.network.inputs, inputs));
    const outputs = await machine.calls.run(inputs, this.#position);
    this.#position = machine.calls.after(this.#position, rows);
    return outputs;
  }

  reset() {
    this.#position = 0;
  }

  close() {
    this.machine.sequences.drop(this);
  }
}

/** Ticks of a clocked grid: one row of each input in, one of each output out. */
class TickStream {
  #tick = 0;
  #fresh = true;
  #inputs = new Map(); // the last of each: an input that is not passed stays as it is

  constructor(machine) {
    this.machine = machine;
  }

  async step(values = {}) {
    const { machine } = this;
    const { inputs: ports, outputs, ticks } = machine.network;
    const inputs = new Map([...this.#inputs, ...inputsByPort(ports, values)]);
    if (inputs.size && rowsOf(ports, inputs) !== 1) throw new InputError("A tick takes one row of each input.");
    machine.sequences.use(this);
    if (this.#fresh) machine.sequences.restoreFirst();
    this.#fresh = false;
    this.#inputs = inputs;
    for (const [name, port] of Object.entries(ports)) {
      machine.write(port.buffer, inputs.has(name) ? packedRows(port, inputs.get(name), 0, 1) : new Uint8Array(port.stride));
    }
    const program = ticks.cycle[this.#tick % ticks.cycle.length];
    await machine.programs.prepare([program]);
    const order = Object.entries(outputs);
    const data = await machine.readback.read(
      order.map(([, port]) => [machine.buffer(port.buffer), 0, port.stride]),
      encoder => machine.programs.record(encoder, program),
    );
    machine.check();
    this.#tick += 1;
    let at = 0;
    return Object.fromEntries(order.map(([name, port]) => {
      const row = unpackedRows(port, data.slice(at, at + port.stride), 1);
      at += port.stride;
      return [name, row];
    }));
  }

  reset() {
    this.#tick = 0;
    this.#fresh = true;
  }

  close() {
    this.machine.sequences.drop(this);
  }
}
