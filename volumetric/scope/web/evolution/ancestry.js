// Who descends from whom: places of genomes in a picture, and what one genome has from which others.

const FIELDS = {
  row: [Int32Array, 1],
  ids: [Int32Array, 1],
  parents: [Int32Array, 2],
  kinds: [Uint8Array, 1],
  species: [Int32Array, 1],
  fitness: [Float32Array, 1],
  sizes: [Uint16Array, 2],
  y: [Float32Array, 1],
};

const MOST_PLACED = 150000; // genomes that all get new places when a generation comes; of more, only the new ones

/**
 * Return {count, row, ids, parents, kinds, species, fitness, sizes, y, rowStart, find(id), extend()} of the genomes of a store.
 *
 * `parents` are places, -1 for none; `y` is 0 … 1, the place in the column of a generation. `extend`
 * adds those of new rows.
 */
export function gatherGenomes(store) {
  const all = { count: 0, rowStart: [0], version: store.version, placed: 0, level: 0.5 };
  for (const [name, [Type, width]] of Object.entries(FIELDS)) all[name] = new Type(width * 1024);
  function room(count) {
    const need = all.count + count,
      have = all.ids.length;
    if (need <= have) return;
    for (const [name, [Type, width]] of Object.entries(FIELDS)) {
      const grown = new Type(width * Math.max(need, 2 * have));
      grown.set(all[name]);
      all[name] = grown;
    }
  }
  all.find = id => {
    let low = 0,
      high = all.count - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (all.ids[middle] === id) return middle;
      if (all.ids[middle] < id) low = middle + 1;
      else high = middle - 1;
    }
    return -1;
  };
  all.extend = () => {
    for (let r = all.rowStart.length - 1; r < store.rows.length; r++) {
      const births = store.rows[r].births,
        count = births?.ids.length ?? 0,
        place = all.count;
      if (count) {
        room(count);
        all.row.fill(r, place, place + count);
        all.ids.set(births.ids, place);
        all.kinds.set(births.kinds, place);
        all.species.set(births.species, place);
        all.fitness.set(births.fitness, place);
        all.sizes.set(births.sizes, 2 * place);
        births.parents.forEach((id, i) => {
          all.parents[2 * place + i] = id < 0 ? -1 : all.find(id);
        });
      }
      all.count += count;
      all.rowStart.push(all.count);
    }
    if (all.placed === 0 || all.count <= MOST_PLACED) all.placed = 0;
    placeGenomes(all, store);
    return all;
  };
  return all.extend();
}

/**
 * Set `y` of the rows from `placed` on. Children stand where their fitter parents do, so that no two of these lines cross;
 * of the children of one parent the best stands in the middle. The line that leads to the best genome of the last
 * generation moves slowly, and the others make room for it.
 */
function placeGenomes(all, store) {
  const rows = store.rows,
    onLine = new Map(),
    sign = store.lower ? 1 : -1;
  for (let i = all.find(rows.at(-1)?.bestGenome ?? -1); i >= 0; i = all.parents[2 * i]) onLine.set(all.row[i], i);
  if (all.placed === 0) all.level = 0.5;
  for (let r = all.placed; r < rows.length; r++) {
    const start = all.rowStart[r],
      count = all.rowStart[r + 1] - start;
    if (!count) continue;
    const order = columnOrder(all, start, count, sign),
      at = order.indexOf(onLine.get(r)),
      share = (at + 0.5) / count;
    if (at >= 0) all.level = Math.max(0.18, Math.min(0.82, all.level + 0.12 * (share - all.level)));
    order.forEach((i, rank) => {
      const even = (rank + 0.5) / count;
      all.y[i] = at < 0 ? even : even <= share ? (even * all.level) / share : all.level + ((even - share) * (1 - all.level)) / (1 - share);
    });
  }
  all.placed = rows.length;
}

/** Return the places of one generation from top to bottom. */
function columnOrder(all, start, count, sign) {
  const families = new Map();
  for (let i = start; i < start + count; i++) {
    const parent = all.parents[2 * i],
      family = parent < 0 ? `species ${all.species[i]}` : parent;
    if (!families.has(family)) families.set(family, { at: parent < 0 ? 2 + lane(all.species[i]) : all.y[parent], members: [] });
    families.get(family).members.push(i);
  }
  return [...families.values()]
    .sort((a, b) => a.at - b.at)
    .flatMap(({ members }) => {
      members.sort((a, b) => sign * (all.fitness[a] - all.fitness[b]) || a - b);
      return [...members.filter((_, k) => k % 2).reverse(), ...members.filter((_, k) => k % 2 === 0)];
    });
}

/** Order of species from top to bottom, which stays as it is when new ones come: they join at the rims. */
export const lane = id => (id < 0 ? 2 ** 31 : id % 2 ? -1 - id : id);

/**
 * Return {share, members, line}: how much each genome passed on to a chosen one (each parent the half), the places with a
 * share, oldest first, and the line of fitter parents from the chosen one back.
 */
export function ancestorsOf(genomes, chosen) {
  const share = new Float32Array(genomes.count),
    members = [],
    line = [];
  if (chosen < 0) return { share, members, line };
  share[chosen] = 1;
  for (let i = chosen; i >= 0; i--) {
    if (!share[i]) continue;
    members.push(i);
    const a = genomes.parents[2 * i],
      b = genomes.parents[2 * i + 1],
      part = a >= 0 && b >= 0 ? share[i] / 2 : share[i];
    if (a >= 0) share[a] += part;
    if (b >= 0) share[b] += part;
  }
  for (let i = chosen; i >= 0; i = genomes.parents[2 * i]) line.push(i);
  return { share, members: members.reverse(), line };
}

/** Return {share, members, line}: how much each genome has of a chosen one, and the places with a share, oldest first. */
export function descendantsOf(genomes, chosen) {
  const share = new Float32Array(genomes.count),
    members = [];
  if (chosen < 0) return { share, members, line: [] };
  share[chosen] = 1;
  for (let i = chosen; i < genomes.count; i++) {
    if (i !== chosen) {
      const a = genomes.parents[2 * i],
        b = genomes.parents[2 * i + 1],
        number = (a >= 0) + (b >= 0);
      if (!number) continue;
      share[i] = ((a >= 0 ? share[a] : 0) + (b >= 0 ? share[b] : 0)) / number;
    }
    if (share[i]) members.push(i);
  }
  return { share, members, line: [] };
}
