// Streams: networks that remember, step by step. Rows of a sequence, or ticks of a clocked grid.

import { InputError } from "./errors.js";
import { inputsByPort, packedRows, rowsOf, unpackedRows } from "./ports.js";

export { Sequences } from "./sequences.js";

/** Return a new stream of a network that remembers. */
export const openStream = machine => new (machine.network.ticks ? TickStream : RowStream)(machine);

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

/** Ticks of a clocked network: a row of each input that has one in, one of each output out. */
class TickStream {
  #fresh = true;

  constructor(machine) {
    this.machine = machine;
  }

  async step(values = {}) {
    const { machine } = this;
    const { inputs: ports, outputs, ticks } = machine.network;
    const inputs = inputsByPort(ports, values);
    if (inputs.size && rowsOf(ports, inputs) !== 1) throw new InputError("A tick takes one row of each input.");
    const program = ticks.programs.find(({ fed }) => fed.length === inputs.size && fed.every(name => inputs.has(name)))?.program;
    if (!program) throw new InputError(`No tick takes only ${[...inputs.keys()].join(", ")}.`, "Pass a row for every input, or for none.");
    machine.sequences.use(this);
    if (this.#fresh) machine.sequences.restoreFirst();
    this.#fresh = false;
    for (const [name, numbers] of inputs) machine.write(ports[name].buffer, packedRows(ports[name], numbers, 0, 1));
    await machine.programs.prepare([program]);
    const order = Object.entries(outputs);
    const data = await machine.readback.read(
      order.map(([, port]) => [machine.buffer(port.buffer), 0, port.stride]),
      encoder => machine.programs.record(encoder, program),
    );
    machine.check();
    let at = 0;
    return Object.fromEntries(order.map(([name, port]) => {
      const row = unpackedRows(port, data.slice(at, at + port.stride), 1);
      at += port.stride;
      return [name, row];
    }));
  }

  reset() {
    this.#fresh = true;
  }

  close() {
    this.machine.sequences.drop(this);
  }
}
