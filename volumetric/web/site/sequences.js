// Sequences that share the buffers of one network: whoever steps has its states there, the others' are put aside.

/** States of the network's buffers, copied aside while another sequence uses them. */
class Aside {
  constructor(machine) {
    this.machine = machine;
    this.copies = null;
  }

  store() {
    const { device, states } = this.machine;
    this.copies ??= states.map(({ size }) => device.createBuffer({ size, usage: GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST }));
    this.#copy(states, this.copies);
  }

  restore() {
    if (this.copies) this.#copy(this.copies, this.machine.states);
  }

  destroy() {
    this.copies?.forEach(buffer => buffer.destroy());
    this.copies = null;
  }

  #copy(sources, targets) {
    const { device } = this.machine;
    const encoder = device.createCommandEncoder();
    sources.forEach((source, i) => encoder.copyBufferToBuffer(source, 0, targets[i], 0, source.size));
    device.queue.submit([encoder.finish()]);
  }
}

/** Which sequence the buffers belong to. */
export class Sequences {
  #machine;
  #owner = null;
  #asides = new Map();
  #first = null;

  constructor(machine) {
    this.#machine = machine;
  }

  /** Keep the first contents of the states, for resets. Called before anything runs. */
  keepFirst() {
    this.#first = new Aside(this.#machine);
    this.#first.store();
  }

  /** Put the first contents into the buffers. */
  restoreFirst() {
    this.#first.restore();
  }

  /** Give the buffers to a sequence; false if it has nothing in them yet. */
  use(sequence) {
    if (this.#owner === sequence) return true;
    if (this.#owner !== null) {
      const aside = this.#asides.get(this.#owner) ?? new Aside(this.#machine);
      this.#asides.set(this.#owner, aside);
      aside.store();
    }
    this.#owner = sequence;
    this.#asides.get(sequence)?.restore();
    return this.#asides.has(sequence);
  }

  /** Forget a sequence. */
  drop(sequence) {
    if (this.#owner === sequence) this.#owner = null;
    this.#asides.get(sequence)?.destroy();
    this.#asides.delete(sequence);
  }
}
