// A language model whose weights are in a GGUF file, and everything else in a template: one sequential pass over the file
// fills the buffers.

import { writeBytes } from "../buffers.js";
import { DamagedFileError, EngineError, FormatError } from "../errors.js";
import { UrlSource } from "../fetch_pieces.js";
import { checkNetwork, wrong } from "../network_file.js";
import { sha256 } from "../sources.js";
import { Header, TYPES } from "./header.js";
import { ForwardReader, OpenedFile, ServedFile } from "./ranged_file.js";
import { Repacking, Words } from "./repack.js";
import { RowWriter, runsOf, runsWithin } from "./row_places.js";
import { checkTemplate, difference, entriesByTensor, networkFor } from "./template.js";

const CHUNK = 2 ** 22; // bytes of whole rows at a time
const IN_FLIGHT = 2 ** 23; // bytes on their way to the GPU
const MOST_PLACES = 16; // places in a buffer of a row of a tensor
const COMMAND = "`volumetric export model.gguf OUT --web --template` writes a template for a file";

/** The source of a network: a GGUF file, and the first template that fits it. */
export class GgufSource {
  #file;
  #reader;
  #header;
  #folders;
  #signal;
  #network;
  #folder = null; // of the template that fits

  /**
   * @param {string | Blob} model address, or file
   * @param {string[]} templates addresses of folders
   * @param {object} files the module stored_files.js
   */
  constructor(model, templates, files, { signal, addresses }) {
    this.#file = typeof model === "string" ? new ServedFile(model, files, signal) : new OpenedFile(model);
    this.#folders = templates.map(address => [address, new UrlSource(address, { signal, addresses })]);
    this.#signal = signal;
  }

  /** Bytes of the file. */
  get bytes() {
    return this.#file.size;
  }

  /**
   * Read the header, and return the network of the first template that fits.
   * @param {(loaded: number, total: number, cached: boolean) => void} progress
   */
  async json(progress) {
    const templates = Promise.all(this.#folders.map(one => this.#template(one)));
    templates.catch(() => {}); // reported below
    this.#header = await this.#readHeader(progress);
    const differences = [];
    for (const [i, { network, sentence }] of (await templates).entries()) {
      const differs = sentence ?? await difference(network.template, this.#header);
      if (!differs) {
        [, this.#folder] = this.#folders[i];
        this.#network = networkFor(network, this.#header, this.#file.name);
        return this.#network;
      }
      differences.push(`${this.#folders[i][0]}: ${differs}`);
    }
    throw new FormatError(`${this.#file.name} fits ${differences.length > 1 ? "none of the templates" : "no template"}. ${differences.join(" ")}`, `${COMMAND}; load(model, {template}) says where it is.`);
  }

  piece(piece, progress) {
    return this.#folder.piece(piece, progress);
  }

  file(name) {
    return this.#folder.file(name);
  }

  /**
   * Fill the buffers of a variant.
   * @param {(loaded: number, cached: boolean) => void} progress
   */
  async fill(device, variant, buffers, progress) {
    const { template } = this.#network;
    let flying = 0;
    const writers = buffers.map(buffer => new RowWriter((offset, bytes) => {
      flying += bytes.length;
      writeBytes(device, buffer, offset, bytes);
    }));
    for (const tensor of entriesByTensor(template, this.#header, variant)) {
      if (Object.hasOwn(template.fixed, tensor.name)) await this.#checkFixed(tensor, template.fixed[tensor.name]);
      if (!tensor.entries.length) continue;
      const { length, count, uses } = rowsOf(tensor, template.types), step = Math.max(1, Math.floor(CHUNK / length));
      for (let row = 0; row < count; row += step) {
        this.#signal?.throwIfAborted();
        const rows = Math.min(step, count - row), bytes = await this.#reader.read(tensor.start + row * length, rows * length);
        for (const { repacking, each, places } of uses) {
          writeRows(repacking.repack(bytes, rows * each), repacking.bytes, row * each, (row + rows) * each, places, writers);
        }
        if (flying >= IN_FLIGHT) {
          await device.queue.onSubmittedWorkDone();
          flying = 0;
        }
        progress(this.#reader.at, this.#file.cached);
      }
    }
    await this.#reader.end();
    progress(this.bytes, this.#file.cached);
  }

  /** Free what the file holds. */
  close() {
    return this.#file.close();
  }

  /** Return the checked {network} of a template, or the {sentence} that says why there is none. */
  async #template([, source]) {
    try {
      const network = checkNetwork(await source.json());
      checkTemplate(network.template);
      return { network };
    } catch (error) {
      this.#signal?.throwIfAborted();
      if (!(error instanceof EngineError)) throw error;
      return { sentence: `There is no template. ${error.sentence}` };
    }
  }

  async #readHeader(progress) {
    await this.#file.open();
    this.#reader = new ForwardReader(this.#file);
    try {
      const header = new Header(this.bytes);
      for (let before = 0; ;) {
        const bytes = await this.#reader.next();
        const whole = header.push(bytes);
        progress(header.length, this.bytes, this.#file.cached);
        if (whole) {
          this.#reader.putBack(bytes.subarray(header.length - before));
          return header;
        }
        before += bytes.length;
      }
    } catch (error) {
      throw error instanceof FormatError ? new FormatError(`${this.#file.name}: ${error.sentence}`, error.hint) : error;
    }
  }

  /** Compare a tensor that the template has the contents of. */
  async #checkFixed({ name, start, stop, entries }, expected) {
    if (entries.length) throw wrong(`template.fixed has ${JSON.stringify(name)}, which is also in a fill`);
    if (await sha256(await this.#reader.read(start, stop - start)) === expected) return;
    throw new DamagedFileError(`${this.#file.name} fits no template: tensor ${name} has other contents than in the template.`, `${COMMAND}.`);
  }
}

/**
 * Return how a tensor is read: {length: bytes of a row in the file, count: rows, uses: [{repacking, each, places: [{buffer,
 * runs}]}]}, where a row of the file is `each` rows of the part: one, or as many as it has words.
 */
function rowsOf({ name, type, shape, start, stop, entries }, types) {
  const elements = shape[0] ?? 1, length = (elements / TYPES[type][1]) * TYPES[type][2], count = (stop - start) / length || 0;
  const uses = new Map();
  for (const { buffer, bytes, part, places, plus } of entries) {
    const words = part === "words", each = words ? elements : 1, key = part + plus;
    if (!uses.has(key)) uses.set(key, { repacking: words ? new Words(plus) : new Repacking(types[type], part, length), each, places: [] });
    const { repacking, places: list } = uses.get(key);
    const runs = runsOf(places, count * each, Math.floor(bytes / repacking.bytes), MOST_PLACES * count * each);
    if (runs === null) throw wrong(`rows of ${JSON.stringify(name)} lie outside of its buffer`);
    list.push({ buffer, runs });
  }
  return { length, count, uses: [...uses.values()] };
}

/** Write rows of a tensor, from `first` to `stop`, where they belong. */
function writeRows(rows, size, first, stop, places, writers) {
  for (const { buffer, runs } of places) {
    const parts = runsWithin(runs, first, stop);
    for (let i = 0; i < parts.length;) {
      let end = i + 1;
      while (end < parts.length && parts[end - 1][1] + parts[end - 1][2] === parts[end][1]) end++;
      writers[buffer].write(parts[i][1] * size, joined(rows, size, first, parts.slice(i, end)));
      i = end;
    }
  }
}

/** The rows of runs, one after the other. */
function joined(rows, size, first, parts) {
  const bytesOf = ([row, , count]) => rows.subarray((row - first) * size, (row - first + count) * size);
  if (parts.length === 1) return bytesOf(parts[0]);
  const result = new Uint8Array(parts.reduce((sum, [, , count]) => sum + count * size, 0));
  let at = 0;
  for (const part of parts) {
    result.set(bytesOf(part), at);
    at += part[2] * size;
  }
  return result;
}
