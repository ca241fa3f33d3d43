// Calls: rows through the network, as many at a time as its programs take.

import { InputError } from "./errors.js";
import { controlWords, gridRows } from "./control_block.js";
import { inputsByPort, packedRows, rowsOf, unpackedRows } from "./ports.js";

const FOLD_AT = 2 ** 30;

export class Calls {
  /** @param {import("./machine.js").Machine} machine */
  constructor(machine) {
    const { calls, inputs, outputs } = machine.network;
    this.machine = machine;
    this.inputs = inputs;
    this.outputs = outputs;
    this.control = calls.control;
    this.whole = calls.whole === true;
    this.positions = calls.positions ?? null;
    this.independent = calls.independent === true;
    this.programs = [...calls.programs].sort((a, b) => a.rows - b.rows);
  }

  /** Prepare the program of one row, or the smallest. */
  async prepare() {
    await this.machine.programs.prepare([this.programs[0].program]);
  }

  /** Return the outputs of rows that begin at a position of the sequence. */
  async run(values, position = 0) {
    const inputs = inputsByPort(this.inputs, values);
    const missing = Object.keys(this.inputs).find(name => !inputs.has(name));
    if (missing !== undefined) throw new InputError(`Input ${missing} is missing.`);
    const rows = rowsOf(this.inputs, inputs);
    this.#checkRoom(position, rows);
    const parts = [];
    for (let first = 0; first < rows;) {
      const { program, take, padded } = this.#choose(rows - first);
      await this.machine.programs.prepare([program]);
      parts.push(await this.#part(program, inputs, first, take, padded, position + (this.independent ? 0 : first)));
      first += take;
    }
    return Object.fromEntries(Object.keys(this.outputs).map(name => [name, joined(parts.map(part => part[name]))]));
  }

  /** The position after so many rows, small enough for 32 bits. */
  after(position, rows) {
    const next = position + rows;
    return this.positions === null && next >= FOLD_AT ? next - FOLD_AT / 2 : next;
  }

  #checkRoom(position, rows) {
    if (this.positions !== null && !this.independent && position + rows > this.positions) {
      throw new InputError(`The sequence has room for ${this.positions} rows; it has ${position}, and ${rows} more were passed.`, "Start it anew with reset().");
    }
  }

  /** The program for the next of so many rows, how many of them it takes, and as how many. */
  #choose(rows) {
    const fitting = this.programs.find(one => one.rows === rows || (one.rows > rows && (!one.exact || this.independent)));
    if (fitting) return { program: fitting.program, take: rows, padded: fitting.exact ? fitting.rows : rows };
    const largest = this.whole ? null : this.programs.filter(one => one.rows <= rows).at(-1);
    if (!largest) throw new InputError(`The network takes sequences of ${this.programs.map(one => (one.exact ? "" : "up to ") + one.rows).join(" or ")} rows, not of ${rows}.`);
    return { program: largest.program, take: largest.rows, padded: largest.rows };
  }

  async #part(program, inputs, first, rows, padded, position) {
    const { machine } = this;
    for (const [name, port] of Object.entries(this.inputs)) {
      machine.write(port.buffer, packedRows(port, inputs.get(name), first, padded));
    }
    if (this.control) machine.write(this.control.buffer, controlWords(this.control, position, padded));
    const grid = this.control && gridRows(this.control, padded);
    const ports = Object.entries(this.outputs);
    const data = await machine.readback.read(
      ports.map(([, port]) => [machine.buffer(port.buffer), 0, port.stride * rows]),
      encoder => machine.programs.record(encoder, program, grid),
    );
    machine.check();
    let at = 0;
    return Object.fromEntries(ports.map(([name, port]) => {
      const part = unpackedRows(port, data.slice(at, at + port.stride * rows), rows);
      at += port.stride * rows;
      return [name, part];
    }));
  }
}

function joined(parts) {
  if (parts.length === 1) return parts[0];
  const whole = new parts[0].constructor(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}
