// The header of a GGUF file (versions 2 and 3, little-endian), checked while it arrives: the same limits and sentences as
// volumetric/loaders/gguf.py and gguf_values.py. Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

import { FormatError } from "../errors.js";

/** Numeric types: number → name, elements of a block, bytes of a block; as volumetric/loaders/gguf_types.py. */
export const TYPES = {
  0: ["F32", 1, 4], 1: ["F16", 1, 2], 2: ["Q4_0", 32, 18], 3: ["Q4_1", 32, 20], 6: ["Q5_0", 32, 22], 7: ["Q5_1", 32, 24],
  8: ["Q8_0", 32, 34], 9: ["Q8_1", 32, 40], 10: ["Q2_K", 256, 84], 11: ["Q3_K", 256, 110], 12: ["Q4_K", 256, 144],
  13: ["Q5_K", 256, 176], 14: ["Q6_K", 256, 210], 15: ["Q8_K", 256, 292], 16: ["IQ2_XXS", 256, 66], 17: ["IQ2_XS", 256, 74],
  18: ["IQ3_XXS", 256, 98], 19: ["IQ1_S", 256, 50], 20: ["IQ4_NL", 32, 18], 21: ["IQ3_S", 256, 110], 22: ["IQ2_S", 256, 82],
  23: ["IQ4_XS", 256, 136], 24: ["I8", 1, 1], 25: ["I16", 1, 2], 26: ["I32", 1, 4], 27: ["I64", 1, 8], 28: ["F64", 1, 8],
  29: ["IQ1_M", 256, 56], 30: ["BF16", 1, 2], 34: ["TQ1_0", 256, 54], 35: ["TQ2_0", 256, 66], 39: ["MXFP4", 32, 17],
  40: ["NVFP4", 64, 36], 41: ["Q1_0", 128, 18],
};

const MOST_KEYS = 100_000, MOST_TENSORS = 200_000, MOST_AXES = 4, MOST_ALIGNMENT = 2 ** 20;
const MOST_KEY_BYTES = 65_535;
const MOST_HEADER_BYTES = 2 ** 28; // ten times the largest vocabularies
const AGAIN = "Download the file again; if this repeats, convert the model again.";
export const F32 = 6;
const U32 = 4, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10;
const FLOATS = [F32, 12];
const BYTES = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const READ = {
  0: (view, at) => view.getUint8(at), 1: (view, at) => view.getInt8(at), 2: (view, at) => view.getUint16(at, true),
  3: (view, at) => view.getInt16(at, true), 4: (view, at) => view.getUint32(at, true), 5: (view, at) => view.getInt32(at, true),
  6: (view, at) => view.getFloat32(at, true), 7: (view, at) => view.getUint8(at) === 1, 10: (view, at) => whole(view.getBigUint64(at, true)),
  11: (view, at) => whole(view.getBigInt64(at, true)), 12: (view, at) => view.getFloat64(at, true),
};

/** A number that is exact, or else a BigInt. */
const whole = value => (Number.isSafeInteger(Number(value)) ? Number(value) : value);
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const wrong = (sentence, hint = AGAIN) => new FormatError(sentence, hint);
const quoted = text => JSON.stringify(text.length > 200 ? `${text.slice(0, 200)}…` : text);

/**
 * A header that arrives in parts.
 *
 * `metadata`: key → {type, value}, or {type: 9, kind, count, start, stop} of an array, whose elements are at `bytes(start, stop)`;
 * `tensors`: name → {type, shape, start, stop}, shapes in the order of the file, places in bytes of the file.
 */
export class Header {
  metadata = new Map();
  tensors = new Map();
  #size;
  #buffer = new Uint8Array(2 ** 16);
  #view = new DataView(this.#buffer.buffer);
  #end = 0;
  #at = 0;
  #steps;

  /** @param {number} size bytes of the file */
  constructor(size) {
    this.#size = size;
    this.#steps = this.#read();
  }

  /**
   * Take the next bytes of the file; returns whether the header is complete.
   * @throws {FormatError} the file is damaged, cut off, split, big-endian or of another version
   */
  push(bytes) {
    if (this.#end + bytes.length > this.#buffer.length) {
      const larger = new Uint8Array(2 ** Math.ceil(Math.log2(this.#end + bytes.length)));
      larger.set(this.#buffer.subarray(0, this.#end));
      this.#buffer = larger;
      this.#view = new DataView(larger.buffer);
    }
    this.#buffer.set(bytes, this.#end);
    this.#end += bytes.length;
    return this.#steps.next().done;
  }

  /** Bytes of the file that it has read, from the beginning on. */
  get length() {
    return this.#at;
  }

  /** Bytes of the header. */
  bytes(start, stop) {
    return this.#buffer.subarray(start, stop);
  }

  /** A value of the metadata, undefined if there is none or it is an array. */
  value(key) {
    return this.metadata.get(key)?.value;
  }

  *#read() {
    const magic = yield* this.#take(4, "The magic number");
    if (this.#view.getUint32(magic, true) !== 0x46554747) throw wrong("This is not a GGUF file: it does not begin with “GGUF”.", "Choose a file whose name ends in .gguf.");
    const version = yield* this.#scalar(U32, "The version");
    if (version !== 2 && version !== 3) {
      const swapped = version === 0x02000000 || version === 0x03000000;
      throw wrong(`GGUF ${swapped ? "in big-endian byte order" : `version ${version}`} is not supported.`, "Convert the model to little-endian GGUF version 3.");
    }
    const tensors = yield* this.#scalar(U64, "The number of tensors"), keys = yield* this.#scalar(U64, "The number of keys");
    if (tensors > MOST_TENSORS || keys > MOST_KEYS) throw wrong(`The file announces ${tensors} tensors and ${keys} keys; the limits are ${MOST_TENSORS} and ${MOST_KEYS}.`);
    for (let i = 0; i < keys; i++) {
      const key = yield* this.#string("A key", MOST_KEY_BYTES);
      if (this.metadata.has(key)) throw wrong(`The metadata have the key ${quoted(key)} twice.`);
      this.metadata.set(key, yield* this.#value(key));
    }
    const parts = this.metadata.get("split.count");
    if (parts && parts.value !== 0 && parts.value !== 1) throw wrong("This file is one part of a split model.", "Join the parts into one file: `llama-gguf-split --merge FIRST_PART OUT.gguf`.");
    const { type, value: alignment } = this.metadata.get("general.alignment") ?? { type: U32, value: 32 };
    if (FLOATS.includes(type) || !Number.isInteger(alignment) || alignment < 8 || alignment > MOST_ALIGNMENT || alignment & (alignment - 1)) {
      throw wrong(`general.alignment is ${alignment}, not a power of two from 8 to ${MOST_ALIGNMENT}.`);
    }
    yield* this.#readTensors(tensors, alignment);
  }

  *#readTensors(count, alignment) {
    const list = [];
    for (let i = 0; i < count; i++) list.push(yield* this.#tensor(alignment));
    const first = Math.ceil(this.#at / alignment) * alignment;
    for (const { name, type, shape, offset, bytes } of list) {
      const start = first + offset, stop = start + bytes;
      if (!(stop <= this.#size)) throw wrong(`Tensor ${quoted(name)} ends at byte ${stop} of a file of ${this.#size} bytes: it is cut off.`);
      if (this.tensors.has(name)) throw wrong(`There are two tensors ${quoted(name)}.`);
      this.tensors.set(name, { type, shape, start, stop });
    }
    const ordered = [...this.tensors].sort(([, a], [, b]) => a.start - b.start || a.stop - b.stop);
    ordered.forEach(([name, { start }], i) => {
      if (i && ordered[i - 1][1].stop > start) throw wrong(`Tensors ${quoted(ordered[i - 1][0])} and ${quoted(name)} overlap.`);
    });
  }

  *#tensor(alignment) {
    const name = yield* this.#string("The name of a tensor", MOST_KEY_BYTES), about = `of tensor ${quoted(name)}`;
    const axes = yield* this.#scalar(U32, `The number of axes ${about}`);
    if (axes > MOST_AXES) throw wrong(`Tensor ${quoted(name)} has ${axes} axes, more than ${MOST_AXES}.`);
    const shape = [];
    for (let axis = 0; axis < axes; axis++) shape.push(yield* this.#scalar(U64, `The shape ${about}`));
    const type = yield* this.#scalar(U32, `The type ${about}`), offset = yield* this.#scalar(U64, `The offset ${about}`);
    if (!Object.hasOwn(TYPES, type)) throw wrong(`Tensor ${quoted(name)} has the unknown type ${type}.`, "The file may be newer than this page: export the template again with a newer volumetric.");
    const [label, block, blockBytes] = TYPES[type];
    if (block > 1 && (!axes || Number(BigInt(shape[0]) % BigInt(block)))) throw wrong(`Tensor ${quoted(name)} of shape [${shape}] does not fill blocks of ${block} (${label}).`);
    if (Number(BigInt(offset) % BigInt(alignment))) throw wrong(`Tensor ${quoted(name)} starts at offset ${offset}, which is not a multiple of ${alignment}.`);
    const elements = shape.reduce((product, size) => product * BigInt(size), 1n);
    return { name, type, shape, offset: Number(offset), bytes: Number((elements / BigInt(block)) * BigInt(blockBytes)) };
  }

  *#value(key) {
    const type = yield* this.#scalar(U32, `The type of ${quoted(key)}`), what = `The value of ${quoted(key)}`;
    if (type === STRING) return { type, value: yield* this.#string(what) };
    if (type === ARRAY) return yield* this.#array(what);
    if (!Object.hasOwn(BYTES, type)) throw wrong(`${what} has the unknown type ${type}.`);
    return { type, value: yield* this.#scalar(type, what) };
  }

  *#array(what) {
    const kind = yield* this.#scalar(U32, what), count = yield* this.#scalar(U64, what);
    const start = this.#at;
    if (kind === STRING) yield* this.#strings(count, what);
    else if (!Object.hasOwn(BYTES, kind)) throw wrong(`${what} is an array of type ${kind}, which is not supported.`);
    else yield* this.#take(Number(count) * BYTES[kind], what);
    if (kind === BOOL && this.bytes(start, this.#at).some(one => one > 1)) throw wrong(`${what} has truth values other than 0 and 1.`);
    return { type: ARRAY, kind, count: Number(count), start, stop: this.#at };
  }

  *#strings(count, what) {
    if (count > (this.#size - this.#at) / 8) throw wrong(`${what} announces ${count} strings with ${this.#size - this.#at} bytes left.`);
    for (let i = 0; i < count; i++) {
      if (this.#at + 8 > this.#end) yield* this.#arrive(8, what);
      const length = this.#view.getUint32(this.#at, true) + 2 ** 32 * this.#view.getUint32(this.#at + 4, true);
      if (this.#at + 8 + length > this.#end) yield* this.#arrive(8 + length, what);
      this.#at += 8 + length;
    }
  }

  *#string(what, limit = Infinity) {
    const length = yield* this.#scalar(U64, `${what}: its length`);
    if (length > limit) throw wrong(`${what} at byte ${this.#at} has ${length} bytes, more than ${limit}.`);
    const start = yield* this.#take(Number(length), what);
    try {
      return utf8.decode(this.bytes(start, this.#at));
    } catch {
      throw wrong(`${what} at byte ${start} is not UTF-8.`);
    }
  }

  *#scalar(type, what) {
    const start = yield* this.#take(BYTES[type], what);
    if (type === BOOL && this.#buffer[start] > 1) throw wrong(`${what} is the truth value ${this.#buffer[start]}, expected 0 or 1.`);
    return READ[type](this.#view, start);
  }

  /** Pass over bytes that have arrived, or wait for them; returns where they begin. */
  *#take(count, what) {
    yield* this.#arrive(count, what);
    const start = this.#at;
    this.#at += count;
    return start;
  }

  *#arrive(count, what) {
    if (!(count <= this.#size - this.#at)) throw wrong(`${what} of ${count} bytes at byte ${this.#at} reaches beyond the end of the file of ${this.#size} bytes: it is damaged, or cut off.`);
    if (this.#at + count > MOST_HEADER_BYTES) throw wrong(`${what} reaches beyond byte ${MOST_HEADER_BYTES}, which is more than a header has.`);
    while (this.#at + count > this.#end) yield;
  }
}
