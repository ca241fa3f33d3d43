// The control block: how kernels know which rows of which sequences a call has. `volumetric.devices.gpu.call_schedule` is the
// reference.

const PLACES_AT = 60;
const NEAR_AT = 4;

/** Words of the block for `rows` rows from `position` on. */
export function controlWords(control, position, rows) {
  if (rows !== 1 || !control.singles) return sequencesWords(control, position, [rows]);
  const words = new Uint32Array(PLACES_AT + 4);
  words.set([1, 1, 0, 1]);
  words.set(control.pages, NEAR_AT);
  words.set([position, control.line, 1, 0], PLACES_AT);
  return words;
}

/** Words of the block for sequences of these numbers of rows, one after the other, each from `position` on. */
export function sequencesWords(control, position, lengths) {
  const { block, places, owners, line } = control, { total, blocks, pieces } = sequencesRows(control, lengths);
  const ownersAt = PLACES_AT + 4 * places, startsAt = ownersAt + owners;
  const words = new Uint32Array(startsAt + blocks), owner = new Uint16Array(words.buffer, 4 * ownersAt, 2 * owners);
  let first = 0, next = startsAt;
  lengths.forEach((length, i) => {
    words.set([position, line, first + length, first], PLACES_AT + 4 * i);
    owner.fill(i, first, first + length);
    for (let at = 0; at < length; at += block) words[next++] = (first + at) | (first << 16);
    first += length;
  });
  words.set([total, 0, blocks, pieces]);
  return words;
}

/** The numbers of rows on which grids depend. */
export function gridRows(control, rows) {
  return rows === 1 && control.singles ? { total: 1, singles: 1, multi_rows: 0, blocks: 0, pieces: 1 } : sequencesRows(control, [rows]);
}

/** The same for sequences of these numbers of rows. */
export function sequencesRows({ block }, lengths) {
  const total = lengths.reduce((sum, length) => sum + length, 0), blocks = lengths.reduce((sum, length) => sum + Math.ceil(length / block), 0);
  return { total, singles: 0, multi_rows: total, blocks, pieces: lengths.length };
}
