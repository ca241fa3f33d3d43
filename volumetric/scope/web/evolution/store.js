// Generations of a run: rows from the arrays of the document, and rows that messages append.
import { isArray, messageArray } from "../document.js";

const NUMBERS = ["best", "mean", "stdev", "worst", "hidden", "connections", "meanHidden", "meanConnections", "threshold"];

/**
 * Return the rows of a view's data as a store.
 *
 * A row: {generation, best, …, bestGenome, species: {ids, sizes, best}|null, births: {ids, parents, kinds, species,
 * fitness, sizes, population}|null, front: {points, width, genomes}|null}. `champions` lists structures by generation.
 */
export async function makeStore(data, doc) {
  const read = async part =>
    part &&
    Object.fromEntries(await Promise.all(Object.entries(part).map(async ([key, value]) => [key, isArray(value) ? await doc.array(value) : value])));
  const [generations, species, births, fronts] = await Promise.all([data.generations, data.species, data.births, data.fronts].map(read));
  const rows = Array.from(generations.generation.data, (generation, i) => ({
    generation,
    bestGenome: generations.bestGenome.data[i],
    failures: generations.failures.data[i],
    ...Object.fromEntries(NUMBERS.map(name => [name, generations[name].data[i]])),
    species: species ? part(species, i, ["ids", "sizes", "best"]) : null,
    births: births ? { ...part(births, i, ["ids", "parents", "kinds", "species", "fitness", "sizes"]), population: births.population.data[i] } : null,
    front: fronts ? { ...part(fronts, i, ["points", "genomes"]), width: fronts.points.shape[1] } : null,
  }));
  const ended = new Map(species ? Array.from(species.ended.data, (id, i) => [id, species.endedBest.data[i]]) : []);
  const store = {
    rows,
    ended,
    champions: [...data.champions],
    kinds: data.kinds,
    sizeNames: data.sizeNames,
    running: data.running,
    total: data.rows,
    lower: false,
    version: 0, // another one where rows went away
    founded: new Map(),
    /** Append rows of a message; returns whether there is anything new. */
    append(messages) {
      for (const message of messages) {
        const row = liveRow(message);
        for (; rows.length && rows.at(-1).generation >= row.generation; store.version++) rows.pop();
        rows.push(row);
        if (message.champion) store.champions.push(message.champion);
        if (message.sizeNames) store.sizeNames = message.sizeNames;
        note(row);
      }
      store.total += messages.length;
      return messages.length > 0;
    },
    clear() {
      rows.length = 0;
      store.champions.length = 0;
      store.founded.clear();
      store.total = 0;
      store.version++;
    },
    /** Place of the row of a generation, or of the last one before it. */
    place(generation) {
      let low = 0,
        high = rows.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (rows[middle].generation <= generation) low = middle;
        else high = middle - 1;
      }
      return Math.max(0, low);
    },
    /** Place in `champions` of the structure that was best at a generation; -1 for none. */
    championAt(generation) {
      let at = -1;
      store.champions.forEach((one, i) => {
        if (one.generation <= generation) at = i;
      });
      return at;
    },
  };
  function note(row) {
    if (row.best < row.worst) store.lower = true;
    for (const id of row.species?.ids ?? []) if (!store.founded.has(id)) store.founded.set(id, row.generation);
  }
  rows.forEach(note);
  return store;
}

/** Entries of one generation in flat arrays; `at` has the first of each. */
function part(flat, i, names) {
  const [start, end] = [flat.at.data[i], flat.at.data[i + 1]];
  return Object.fromEntries(
    names.map(name => {
      const { data, shape } = flat[name],
        width = shape.length > 1 ? shape[1] : 1;
      return [name, data.subarray(start * width, end * width)];
    }),
  );
}

function liveRow(message) {
  const read = of => of && Object.fromEntries(Object.entries(of).map(([key, value]) => [key, isArray(value) ? messageArray(value) : value]));
  const plain = of => of && Object.fromEntries(Object.entries(of).map(([key, value]) => [key, value.data ?? value]));
  const front = read(message.front),
    births = plain(read(message.births));
  return {
    ...message,
    ...Object.fromEntries(NUMBERS.map(name => [name, message[name] === undefined ? NaN : Number(message[name])])),
    species: plain(read(message.species)) ?? null,
    births: births ? { ...births, population: births.ids.length } : null,
    front: front ? { points: front.points.data, width: front.points.shape[1], genomes: front.genomes.data } : null,
  };
}
