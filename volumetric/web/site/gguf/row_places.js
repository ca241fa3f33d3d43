// Where rows of a tensor go in a buffer.

/**
 * Return the runs [first row in the tensor, first row in the buffer, rows] of nested loops, in the order of the tensor, or
 * null if there are more rows than `most`, or some outside of the tensor or the buffer.
 * @param {[number, number, [number, number, number][]][]} places
 */
export function runsOf(places, tensorRows, bufferRows, most) {
  const runs = [];
  let total = 0;
  for (const [tensor, buffer, loops] of places) {
    const last = loops.at(-1), block = last && last[1] === 1 && last[2] === 1 ? last[0] : 1;
    const outer = block > 1 || last?.[0] === 1 ? loops.slice(0, -1) : loops;
    total += outer.reduce((product, [count]) => product * count, block);
    if (!(total <= most)) return null;
    const walk = (level, t, b) => {
      if (level === outer.length) {
        const end = runs.at(-1);
        if (end && end[0] + end[2] === t && end[1] + end[2] === b) end[2] += block;
        else runs.push([t, b, block]);
        return;
      }
      const [count, dt, db] = outer[level];
      for (let i = 0; i < count; i++) walk(level + 1, t + i * dt, b + i * db);
    };
    walk(0, tensor, buffer);
  }
  const inside = ([t, b, rows]) => t >= 0 && b >= 0 && t + rows <= tensorRows && b + rows <= bufferRows;
  return runs.every(inside) ? runs.sort((a, b) => a[0] - b[0]) : null;
}

/** The parts of runs that lie in the rows from `first` to `stop` of the tensor, in the order of the buffer. */
export function runsWithin(runs, first, stop) {
  const parts = [];
  for (const [t, b, rows] of runs) {
    if (t >= stop) break;
    const from = Math.max(t, first), to = Math.min(t + rows, stop);
    if (from < to) parts.push([from, b + from - t, to - from]);
  }
  return parts.sort((a, b) => a[1] - b[1]);
}

/**
 * Writes rows to a buffer, at any byte. The queue takes whole words only: of words that two writes share, the bytes that are
 * there already are kept until the word is complete.
 */
export class RowWriter {
  #write;
  #shared = new Map(); // word → [its bytes so far, how many]

  /** @param {(offset: number, bytes: Uint8Array) => void} write takes whole words */
  constructor(write) {
    this.#write = write;
  }

  /** Write bytes that have not been written before. */
  write(offset, bytes) {
    let from = 0, to = bytes.length;
    const head = Math.min(-offset & 3, to);
    if (head) this.#part(offset, bytes.subarray(0, from = head));
    const tail = (offset + to) & 3;
    if (tail && to - from >= tail) this.#part(offset + to - tail, bytes.subarray(to - tail, to), to -= tail);
    if (to > from) this.#write(offset + from, bytes.subarray(from, to));
  }

  /** Write a part of a word. */
  #part(offset, bytes) {
    const word = offset - (offset & 3), [whole, count] = this.#shared.get(word) ?? [new Uint8Array(4), 0];
    whole.set(bytes, offset - word);
    if (count + bytes.length < 4) this.#shared.set(word, [whole, count + bytes.length]);
    else this.#shared.delete(word);
    this.#write(word, whole);
  }
}
