// Rows of a tensor, as they stand in a GGUF file, become rows of a buffer: bits move by the tables of a template
// (docs/web_format.md), which are applied step by step to many blocks at a time.

const TILE = 2 ** 15; // bytes of rows at a time, which stay in the nearest cache

/** The lowest bit of a mask that is not 0. */
const lowest = mask => 31 - Math.clz32(mask & -mask);

/**
 * Split a term of a section into steps that each read one word at a byte: {word, at, right, left, mask}.
 * @param {[number, number, number]} term word in the group, delta in bits, mask
 */
function stepsOf([word, delta, mask]) {
  const steps = [];
  for (let rest = mask | 0; rest;) {
    const low = lowest(rest), at = (delta + low) >> 3;
    const most = Math.min(31, 8 * at + 31 - delta); // the last bit of the term that is in the word at this byte
    const part = rest & (most === 31 ? -1 : 2 ** (most + 1) - 1), shift = 8 * at - delta;
    steps.push({ word, at, right: Math.max(-shift, 0), left: Math.max(shift, 0), mask: part });
    rest &= ~part;
  }
  return steps;
}

/** A section of a part for rows of so many blocks. */
function sectionFor({ blocks, words, align, terms, xor = null }, blockBytes, count) {
  const groups = Math.ceil(count / blocks), filled = Math.ceil((count * 4 * words) / blocks);
  const steps = terms.flatMap(stepsOf);
  const seen = new Set();
  for (const step of steps) {
    step.first = !seen.has(step.word);
    seen.add(step.word);
  }
  const group = blocks * blockBytes;
  return {
    steps, words, groups, group, filled, bytes: Math.ceil(filled / align) * align,
    constants: (xor ?? []).map((constant, word) => ({ word, constant: constant | 0 })).filter(one => one.constant),
    before: Math.max(0, ...steps.map(({ at }) => -at)), after: Math.max(0, ...steps.map(({ at }) => at + 4 - group)),
    complete: seen.size === words,
  };
}

/** Elements of float32, to which a number is added. */
export class Words {
  bytes = 4;
  #plus;

  constructor(plus) {
    this.#plus = plus;
  }

  /** Return elements of the file as words of the buffer. */
  repack(bytes) {
    if (!this.#plus) return bytes; // the bits stay, also those of -0 and NaN
    return new Uint8Array(new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4).map(value => value + this.#plus).buffer);
  }
}

/** Rows of a type become rows of a part. */
export class Repacking {
  #sections;
  #length; // bytes of a row in the file
  #step; // bytes from row to row in the tile
  #before;
  #tile;
  #view;
  #words;

  /**
   * @param {{block_bytes: number, parts: Record<string, object[]>}} type
   * @param {string} part
   * @param {number} length bytes of a row in the file, of whole blocks
   */
  constructor(type, part, length) {
    this.#length = length;
    this.#sections = type.parts[part].map(section => sectionFor(section, type.block_bytes, length / type.block_bytes));
    /** Bytes of a row in the buffer. */
    this.bytes = this.#sections.reduce((sum, one) => sum + one.bytes, 0);
    this.#before = Math.max(...this.#sections.map(one => one.before));
    this.#step = this.#before + Math.max(...this.#sections.map(one => one.groups * one.group + one.after));
    const rows = Math.max(1, Math.floor(TILE / this.#step));
    this.#tile = new Uint8Array(rows * this.#step); // what is no row in it stays 0
    this.#view = new DataView(this.#tile.buffer);
    this.#words = new Int32Array(rows * Math.max(...this.#sections.map(one => one.groups * one.words)));
  }

  /** Return rows of the file as rows of the buffer, one after the other. */
  repack(bytes, rows) {
    const result = new Uint8Array(rows * this.bytes), most = this.#tile.length / this.#step;
    for (let first = 0; first < rows; first += most) {
      const count = Math.min(most, rows - first);
      for (let row = 0; row < count; row++) {
        const from = (first + row) * this.#length;
        this.#tile.set(bytes.subarray(from, from + this.#length), row * this.#step + this.#before);
      }
      let at = 0;
      for (const section of this.#sections) {
        this.#move(section, count);
        const words = new Uint8Array(this.#words.buffer), step = 4 * section.groups * section.words;
        for (let row = 0; row < count; row++) {
          result.set(words.subarray(row * step, row * step + section.filled), (first + row) * this.bytes + at);
        }
        at += section.bytes;
      }
    }
    return result;
  }

  /** Compute the words of a section for the rows in the tile. */
  #move({ steps, words, groups, group, constants, complete }, rows) {
    const out = this.#words, step = groups * words;
    if (!complete) out.fill(0, 0, rows * step);
    for (let row = 0; row < rows; row++) {
      const to = row * step, end = to + step, from = row * this.#step + this.#before;
      for (const { word, at, right, left, mask, first } of steps) {
        if (first) assign(this.#view, from + at, group, out, to + word, end, words, right, left, mask);
        else combine(this.#view, from + at, group, out, to + word, end, words, right, left, mask);
      }
      for (const { word, constant } of constants) for (let i = to + word; i < end; i += words) out[i] ^= constant;
    }
  }
}

function assign(view, from, group, out, to, end, words, right, left, mask) {
  for (; to < end; to += words, from += group) out[to] = ((view.getInt32(from, true) >>> right) << left) & mask;
}

function combine(view, from, group, out, to, end, words, right, left, mask) {
  for (; to < end; to += words, from += group) out[to] |= ((view.getInt32(from, true) >>> right) << left) & mask;
}
