// Streams of clocked networks, tick by tick.

import { InputError } from "./errors.js";
import { inputsByPort, packedRows, rowsOf, unpackedRows } from "./ports.js";

export { Sequences } from "./sequences.js";

/** Ticks of a clocked network: a row of each input that has one in, one of each output out. */
export class Stream {
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
