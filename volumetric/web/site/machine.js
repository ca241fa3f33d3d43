// A network on the GPU: loaded, and what can be asked of it. It runs in the worker, or in the page without one.

import { adapterInfo, chooseVariant, requestAdapter, requestDevice } from "./adapter.js";
import { Readback, createBuffers, lostError, writeBytes, writeInline, writePiece } from "./buffers.js";
import { Calls } from "./calls.js";
import { EngineError, InputError } from "./errors.js";
import { checkBuffers, checkFileName, checkNetwork, foreseen } from "./network_file.js";
import { Pipelines } from "./pipelines.js";
import { Programs } from "./replay.js";
import { Sequences } from "./sequences.js";
import { openStream } from "./streams.js";

/**
 * Load a network.
 * @param {object} source `UrlSource` or `CallerSource`
 * @param {{addresses?: Record<string, string>, hide?: string[]}} options
 * @param {(progress: object) => void} emit called with {stage, loaded, total}
 * @param {{aborted: boolean, reason?: any}} signal
 */
export async function openMachine(source, { addresses = {}, hide = [] } = {}, emit = () => {}, signal = { aborted: false }) {
  const stopIfAsked = () => {
    if (signal.aborted) throw signal.reason ?? new DOMException("Loading was cancelled.", "AbortError");
  };
  emit({ stage: "start", loaded: 0, total: 0 });
  let device = null;
  try {
    const [network, adapter] = await Promise.all([source.json().then(checkNetwork), requestAdapter()]);
    stopIfAsked();
    const variant = chooseVariant(network.variants, adapter, hide);
    checkBuffers(variant, network.pieces);
    device = await requestDevice(adapter, variant.needs);
    const machine = new Machine(device, network, variant, await createBuffers(device, variant), adapterInfo(adapter, hide));
    writeInline(device, variant, machine.buffers);
    const total = network.pieces.reduce((sum, piece) => sum + piece.bytes, 0);
    let before = 0;
    const parts = machine.loadParts(source, addresses);
    parts.catch(() => {}); // reported below, unless a piece fails first
    for (const [number, piece] of network.pieces.entries()) {
      const bytes = await source.piece(piece, (loaded, cached) => emit({ stage: "weights", loaded: before + loaded, total, cached }));
      stopIfAsked();
      writePiece(device, variant, machine.buffers, number, bytes);
      before += piece.bytes;
      await device.queue.onSubmittedWorkDone(); // so that copies on their way stay below one piece
    }
    await parts;
    emit({ stage: "kernels", loaded: total, total });
    await machine.prepare();
    stopIfAsked();
    machine.check();
    emit({ stage: "ready", loaded: total, total });
    return machine;
  } catch (error) {
    device?.destroy();
    throw foreseen(error);
  }
}

export class Machine {
  #byName;
  #failure = null;
  #streams = new Map();
  #turn = Promise.resolve();
  #number = 0;

  constructor(device, network, variant, buffers, adapter) {
    this.device = device;
    this.network = network;
    this.variant = variant;
    this.buffers = buffers;
    this.adapter = adapter;
    this.#byName = new Map(variant.buffers.map(({ name }, i) => [name, buffers[i]]));
    this.states = (network.states ?? []).map(name => this.buffer(name));
    this.programs = new Programs(device, variant, buffers, new Pipelines(device, network.modules, variant));
    this.readback = new Readback(device);
    this.sequences = new Sequences(this);
    this.calls = network.calls ? new Calls(this) : null;
    this.language = this.encoder = this.TickStream = null;
    for (const port of [...Object.values(network.inputs), ...Object.values(network.outputs)]) this.buffer(port.buffer);
    /** A promise of the error, if the GPU is lost; a network that is closed is not lost. */
    this.lost = new Promise(resolve => {
      device.lost.then(({ message, reason }) => {
        const closed = reason === "destroyed";
        this.#failure ??= closed ? new EngineError("The network is closed.", "Load it again.") : lostError(message);
        if (!closed) resolve(this.#failure);
      });
    });
    device.addEventListener("uncapturederror", ({ error }) => {
      this.#failure ??= new EngineError(`The GPU refuses the network's commands: ${error.message}`, "Update the browser, or export the network again.");
    });
  }

  /** What a page tells of the network. */
  get info() {
    const { kind, title = "", origin = {}, inputs, outputs, ui = {}, pieces, language, encoder, ticks, population, learner, calls } = this.network;
    return {
      kind, title, origin, inputs, outputs, ui, device: this.adapter, variant: this.variant.label ?? "",
      weightBytes: pieces.reduce((sum, { bytes }) => sum + bytes, 0), deviceBytes: this.buffers.reduce((sum, { size }) => sum + size, 0),
      streams: Boolean(ticks) || Boolean(calls && !calls.independent && !calls.whole && !language && !encoder),
      language: language ? { vocabulary: language.vocabulary, context: language.context, defaults: language.defaults ?? {}, chats: this.language?.texts.chats ?? false, text: this.language?.texts.hasTokenizer ?? false } : null,
      encoder: encoder ? { tokens: encoder.tokens, prompts: Object.keys(encoder.prompts ?? {}), classes: encoder.heads?.classify?.output?.names ?? null } : null,
      ticks: ticks ?? null, population: population ?? null, learner,
    };
  }

  /** Load what only this kind of network needs: its streams, or tokenizer and template. */
  async loadParts(source, addresses) {
    const { language, encoder, ticks } = this.network, about = language ?? encoder;
    const part = name => import(addresses[name] ?? new URL(name, import.meta.url).href);
    if (ticks) this.TickStream = (await part("ticks.js")).TickStream;
    if (!about) return;
    const text = await part("text.js");
    const json = about.tokenizer ? await source.file(checkFileName(about.tokenizer)) : null;
    const texts = new text.Texts(json, language ?? {});
    if (language) {
      const { Language } = await part("language.js");
      this.language = new Language(this, text, texts);
    } else {
      const { Encoder } = await part("encoder.js");
      this.encoder = new Encoder(this, texts);
    }
  }

  /** Compile what is needed first. */
  async prepare() {
    if (this.network.ticks) {
      this.sequences.keepFirst();
      await this.programs.prepare(this.network.ticks.programs.map(one => one.program));
    } else if (this.language) {
      await this.language.prepare();
    } else if (this.calls) {
      await this.calls.prepare();
    }
  }

  /** Raise if the GPU has failed. */
  check() {
    if (this.#failure) throw this.#failure;
  }

  /** Return a buffer by its name. */
  buffer(name) {
    const buffer = this.#byName.get(name);
    if (!buffer) throw new InputError(`The network has no buffer ${JSON.stringify(name)}.`);
    return buffer;
  }

  /** Write numbers to a buffer. */
  write(name, values, offset = 0) {
    writeBytes(this.device, this.buffer(name), offset, new Uint8Array(values.buffer, values.byteOffset, values.byteLength));
  }

  /** Submit a program that is prepared. */
  submit(name, rows = null) {
    const encoder = this.device.createCommandEncoder();
    this.programs.record(encoder, name, rows);
    this.device.queue.submit([encoder.finish()]);
  }

  /** Methods that a page calls, by name; see `engine.d.ts`. */
  methods = {
    run: async ([inputs]) => this.#alone(() => {
      if (!this.calls) throw new InputError(`A network of the kind ${this.network.kind} has no run().`, "Use stream() and step().");
      if (!this.calls.independent) this.sequences.use(this);
      return this.calls.run(inputs);
    }),
    stream: async () => {
      this.#streams.set(++this.#number, openStream(this));
      return this.#number;
    },
    step: async ([stream, inputs]) => this.#alone(() => this.#stream(stream).step(inputs)),
    reset: async ([stream]) => this.#alone(() => this.#stream(stream).reset()),
    closeStream: async ([stream]) => this.#alone(() => {
      this.#streams.get(stream)?.close();
      this.#streams.delete(stream);
    }),
    generate: ([prompt, options], emit, signal) => this.#languageOf().generate(prompt, options, emit, signal),
    logits: ([prompt]) => this.#languageOf().logits(prompt),
    encode: async ([prompt, options]) => (this.language ?? this.#encoderOf()).encode(prompt, options),
    decode: async ([ids]) => this.#languageOf().texts.decode(Array.from(ids)),
    embed: ([texts, options]) => this.#alone(() => this.#encoderOf().embed(texts, options)),
    classify: ([texts]) => this.#alone(() => this.#encoderOf().classify(texts)),
    write: async ([name, values, offset]) => this.write(name, values, offset),
    submit: async ([names]) => this.#alone(async () => {
      await this.programs.prepare(names);
      for (const name of names) this.submit(name);
      this.check();
    }),
    read: async ([name, offset, bytes]) => {
      const data = await this.readback.read([[this.buffer(name), offset ?? 0, bytes ?? this.buffer(name).size - (offset ?? 0)]]);
      this.check();
      return data;
    },
    close: async () => this.device.destroy(),
  };

  /** Call a method by name. */
  async call(method, args, emit, signal) {
    this.check();
    if (!Object.hasOwn(this.methods, method)) throw new InputError(`There is no method ${method}.`);
    try {
      return await this.methods[method](args, emit, signal);
    } catch (error) {
      throw foreseen(error);
    }
  }

  /** Run one thing at a time: all share the same buffers. */
  #alone(work) {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  #stream(number) {
    const stream = this.#streams.get(number);
    if (!stream) throw new InputError("This stream is closed.", "Open another one with stream().");
    return stream;
  }

  #languageOf() {
    if (!this.language) throw new InputError(`A network of the kind ${this.network.kind} does not generate text.`, "Use run() or stream().");
    return this.language;
  }

  #encoderOf() {
    if (!this.encoder) throw new InputError(`A network of the kind ${this.network.kind} does not encode texts.`);
    return this.encoder;
  }
}
