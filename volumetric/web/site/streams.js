// Streams: networks that remember, row by row; ticks.js has those of clocked networks.

import { inputsByPort, rowsOf } from "./ports.js";

export { Sequences } from "./sequences.js";

/** Rows of a sequence. */
export class Stream {
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
