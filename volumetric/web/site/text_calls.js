// Hidden states of texts: several texts in one call where the network can have them, else one after the other.

import { sequencesRows, sequencesWords } from "./control_block.js";
import { isWhole, wrong } from "./network_file.js";
import { packedRows, unpackedRows } from "./ports.js";

export class TextCalls {
  #machine;
  #together;

  /** @param {import("./machine.js").Machine} machine */
  constructor(machine) {
    this.#machine = machine;
    this.#together = machine.network.encoder.together ?? null;
    if (this.#together && !isWhole(this.#together.rows, 1, 2 ** 16 - 1)) throw wrong("encoder.together is not valid");
  }

  /** Yield the rows of each text, an array of vectors, in order. */
  async *hidden(texts) {
    for (let first = 0; first < texts.length;) {
      const count = this.#fitting(texts, first);
      const some = texts.slice(first, first + count);
      const states = count > 1 ? await this.#call(some) : (await this.#machine.calls.run(this.#inputs(some[0]))).hidden;
      const width = states.length / some.reduce((sum, ids) => sum + ids.length, 0);
      let at = 0;
      for (const ids of some) {
        yield ids.map(() => states.subarray(at, at += width));
      }
      first += count;
    }
  }

  /** How many texts from `first` on one call takes. */
  #fitting(texts, first) {
    if (!this.#together) return 1;
    const most = Math.min(first + this.#machine.network.calls.control.places, texts.length);
    let after = first, rows = 0;
    while (after < most && (rows += texts[after].length) <= this.#together.rows) after++;
    return Math.max(after - first, 1);
  }

  async #call(texts) {
    const { programs, network, readback } = this.#machine;
    const { control } = network.calls, { hidden } = network.outputs;
    const lengths = texts.map(ids => ids.length);
    await programs.prepare([this.#together.program]);
    for (const [name, values] of Object.entries(this.#inputs(texts.flat()))) {
      const port = network.inputs[name];
      this.#machine.write(port.buffer, packedRows(port, values, 0, values.length));
    }
    const rows = sequencesRows(control, lengths);
    this.#machine.write(control.buffer, sequencesWords(control, 0, lengths));
    const data = await readback.read(
      [[this.#machine.buffer(hidden.buffer), 0, hidden.stride * rows.total]],
      encoder => programs.record(encoder, this.#together.program, rows),
    );
    this.#machine.check();
    return unpackedRows(hidden, data, rows.total);
  }

  #inputs(ids) {
    const names = Object.keys(this.#machine.network.inputs);
    return Object.fromEntries(names.map(name => [name, name === "tokens" ? Int32Array.from(ids) : new Int32Array(ids.length)]));
  }
}
