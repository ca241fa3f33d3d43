// Streams: networks that remember, row by row; ticks.js has those of clocked networks.

import { InputError } from "./errors.js";
import { inputsByPort, rowsOf } from "./ports.js";

/** Return a new stream of a network. */
export function openStream(machine) {
  const kind = machine.network.kind;
  if (machine.TickStream) return new machine.TickStream(machine);
  if (machine.calls && !machine.calls.independent && !machine.calls.whole && kind !== "language") return new RowStream(machine);
  throw new InputError(`A network of the kind ${kind} has no stream.`, kind === "language" ? "Use generate() or chat()." : "Use run().");
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
