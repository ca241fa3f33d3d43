// The control block: how kernels know which rows of a sequence a call has. `volumetric.devices.gpu.call_schedule` is the
// reference, for calls of one sequence.

const PLACES_AT = 60;
const NEAR_AT = 4;

/** Words of the block for `rows` rows from `position` on. */
export function controlWords({ block, places, owners, singles, line, pages }, position, rows) {
  if (rows === 1 && singles) {
    const words = new Uint32Array(PLACES_AT + 4);
    words.set([1, 1, 0, 1]);
    words.set(pages, NEAR_AT);
    words.set([position, line, 1, 0], PLACES_AT);
    return words;
  }
  const blocks = Math.ceil(rows / block);
  const starts = PLACES_AT + 4 * places + owners;
  const words = new Uint32Array(starts + blocks);
  words.set([rows, 0, blocks, 1]);
  words.set([position, line, rows, 0], PLACES_AT);
  for (let b = 0; b < blocks; b++) words[starts + b] = b * block;
  return words;
}

/** The numbers of rows on which grids depend. */
export function gridRows({ block, singles }, rows) {
  if (rows === 1 && singles) return { total: 1, singles: 1, multi_rows: 0, blocks: 0, pieces: 1 };
  return { total: rows, singles: 0, multi_rows: rows, blocks: Math.ceil(rows / block), pieces: 1 };
}
