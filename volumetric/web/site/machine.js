// A network on the GPU: loaded, and what can be asked of it. It runs in the worker, or in the page without one.

import { adapterInfo, openVariant, requestAdapter } from "./adapter.js";
import { Readback, checkRange, createBuffers, lostError, writeBytes, writeInline, writePiece } from "./buffers.js";
import { EngineError, InputError } from "./errors.js";
import { UrlSource } from "./fetch_pieces.js";
import { imported } from "./lazy_modules.js";
import { checkBuffers, checkFileName, checkNetwork, foreseen } from "./network_file.js";
import { Pipelines } from "./pipelines.js";
import { Programs } from "./replay.js";
import { CallerSource } from "./sources.js";

/** Where a network comes from. A source has `json()`, `piece(piece, progress)` and `file(name)`; some have `fill` and `close`. */
async function sourceOf({ url, file, templates, addresses }, caller, signal) {
  if (!templates) return url === null ? new CallerSource(caller) : new UrlSource(url, { signal, addresses });
  const [{ GgufSource }, files] = await Promise.all(["gguf/model_source.js", "stored_files.js"].map(name => imported(name, addresses)));
  return new GgufSource(file ?? url, templates, files, { signal, addresses });
}

/**
 * Load a network.
 * @param {{url: string | null, file?: Blob, templates?: string[], addresses: Record<string, string>, hide: string[]}} options
 * @param {object} caller a source of the caller, for those without an address
 * @param {(progress: object) => void} emit called with {stage, loaded, total, cached}
 * @param {AbortSignal | null} signal
 */
export async function openMachine(options, caller, emit, signal = null) {
  const { addresses, hide } = options;
  emit({ stage: "start", loaded: 0, total: 0 });
  let device = null, source = null;
  try {
    source = await sourceOf(options, caller, signal);
    const [network, adapter] = await Promise.all([
      source.json((loaded, total, cached) => emit({ stage: "header", loaded, total, cached })).then(checkNetwork), requestAdapter()]);
    signal?.throwIfAborted();
    if (network.template && !source.fill) throw new InputError("This is a template for GGUF files, without weights.", "Pass it the file: load(\"model.gguf\", {template}).");
    const opened = await openVariant(network.variants, adapter, hide, addresses);
    device = opened.device;
    const { variant } = opened;
    checkBuffers(variant, network.pieces);
    const machine = new Machine(device, network, variant, await createBuffers(device, variant), adapterInfo(adapter, hide));
    writeInline(device, variant, machine.buffers);
    const total = machine.weightBytes = network.pieces.reduce((sum, piece) => sum + piece.bytes, source.bytes ?? 0);
    let before = 0;
    const arrived = (loaded, cached) => emit({ stage: "weights", loaded: before + loaded, total, cached });
    const modules = machine.loadModules(source, addresses);
    modules.catch(() => {}); // reported below, unless a piece fails first
    for (const [number, piece] of network.pieces.entries()) {
      const bytes = await source.piece(piece, arrived);
      signal?.throwIfAborted();
      writePiece(device, variant, machine.buffers, number, bytes);
      before += piece.bytes;
      await device.queue.onSubmittedWorkDone(); // so that copies on their way stay below one piece
    }
    await source.fill?.(device, variant, machine.buffers, arrived);
    await modules;
    emit({ stage: "kernels", loaded: total, total });
    await machine.prepare();
    signal?.throwIfAborted();
    machine.check();
    emit({ stage: "ready", loaded: total, total });
    return machine;
  } catch (error) {
    device?.destroy();
    throw foreseen(error);
  } finally {
    await source?.close?.();
  }
}

export class Machine {
  #byName;
  #Stream = null;
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
    this.calls = this.sequences = this.language = this.encoder = null;
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
    const { kind, title = "", origin = {}, inputs, outputs, ui = {}, language, encoder, ticks, population, learner } = this.network;
    return {
      kind, title, origin, inputs, outputs, ui, device: this.adapter, variant: this.variant.label ?? "",
      weightBytes: this.weightBytes, deviceBytes: this.buffers.reduce((sum, { size }) => sum + size, 0),
      streams: this.streams,
      language: language ? { vocabulary: language.vocabulary, context: language.context, defaults: language.defaults ?? {}, chats: this.language?.texts.chats ?? false, text: this.language?.texts.hasTokenizer ?? false } : null,
      encoder: encoder ? { tokens: encoder.tokens, prompts: Object.keys(encoder.prompts ?? {}), classes: encoder.heads?.classify?.output?.names ?? null } : null,
      ticks: ticks ?? null, population: population ?? null, learner,
    };
  }

  /** Whether the network remembers from call to call. */
  get streams() {
    const { ticks, calls, language, encoder } = this.network;
    return Boolean(ticks || (calls && !calls.independent && !calls.whole && !language && !encoder));
  }

  /** Load what networks of this kind need: rows, streams, texts with tokenizer and template. */
  async loadModules(source, addresses) {
    const { calls, language, encoder, ticks } = this.network;
    if (calls && !language) this.calls = new (await imported("calls.js", addresses)).Calls(this);
    if (this.streams) {
      const { Sequences, Stream } = await imported(ticks ? "ticks.js" : "streams.js", addresses);
      this.sequences = new Sequences(this);
      this.#Stream = Stream;
    }
    const about = language ?? encoder;
    if (!about) return;
    const text = await imported("text.js", addresses);
    const json = about.tokenizer ? await source.file(checkFileName(about.tokenizer)) : null;
    const texts = new text.Texts(json, language ?? {});
    if (language) {
      const { Language } = await imported("language.js", addresses);
      this.language = new Language(this, text, texts);
    } else {
      const { Encoder } = await imported("encoder.js", addresses);
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
      if (!this.calls) throw new InputError(`A network of the kind ${this.network.kind} has no run().`, this.language ? "Use generate() or logits()." : "Use stream() and step().");
      this.sequences?.use(this);
      return this.calls.run(inputs);
    }),
    stream: async () => {
      if (!this.streams) throw new InputError(`A network of the kind ${this.network.kind} has no stream.`, this.language ? "Use generate() or chat()." : "Use run().");
      this.#streams.set(++this.#number, new this.#Stream(this));
      return this.#number;
    },
    step: async ([stream, inputs]) => this.#alone(() => this.#stream(stream).step(inputs)),
    reset: async ([stream]) => this.#alone(() => this.#stream(stream).reset()),
    closeStream: async ([stream]) => this.#alone(() => {
      this.#streams.get(stream)?.close();
      this.#streams.delete(stream);
    }),
    generate: ([prompt, options], emit, signal) => this.#languageOf().generate(prompt, options, emit, signal),
    logits: ([prompt], emit) => this.#languageOf().logits(prompt, emit),
    encode: async ([prompt, options]) => (this.language ?? this.#encoderOf()).encode(prompt, options),
    decode: async ([ids]) => this.#languageOf().decode(ids),
    embed: ([texts, options]) => this.#alone(() => this.#encoderOf().embed(texts, options)),
    classify: ([texts]) => this.#alone(() => this.#encoderOf().classify(texts)),
    write: async ([name, values, offset]) => {
      if (!ArrayBuffer.isView(values)) throw new InputError("write() takes a typed array.", "For example Float32Array.of(1, 2).");
      checkRange(name, this.buffer(name).size, offset, Math.ceil(values.byteLength / 4) * 4);
      this.write(name, values, offset);
    },
    submit: async ([names]) => this.#alone(async () => {
      const absent = names.find(name => !this.programs.has(name));
      if (absent !== undefined) throw new InputError(`The network has no program ${JSON.stringify(absent)}.`, `It has: ${this.programs.names.join(", ")}.`);
      await this.programs.prepare(names);
      for (const name of names) this.submit(name);
      this.check();
    }),
    read: async ([name, offset = 0, bytes = undefined]) => {
      const buffer = this.buffer(name), count = bytes ?? buffer.size - offset;
      checkRange(name, buffer.size, offset, count);
      const data = await this.readback.read([[buffer, offset, count]]);
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
