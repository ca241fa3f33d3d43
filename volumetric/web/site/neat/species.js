// Species, fitness sharing and the choice of parents: `volumetric/evolution/species.py`, with `distance` and `speciate` of
// `kernels/genome_kernels.py` and `pair` of `kernels/breeding.py`. Scores: higher is better.

import { Stream } from "./stream.js";

/** The compatibility distance δ = c₁·E/N + c₂·D/N + c₃·W̄ of two genomes. */
export function distance(a, b, { excess: c1, disjoint: c2, weight: c3, small_genome: small }) {
  let disjoint = 0, matching = 0, difference = 0, i = 0, j = 0;
  while (i < a.connections.length && j < b.connections.length) {
    const one = a.connections[i], other = b.connections[j];
    if (one.innovation === other.innovation) {
      difference += Math.abs(one.weight - other.weight);
      matching++;
    } else disjoint++;
    i += one.innovation <= other.innovation;
    j += other.innovation <= one.innovation;
  }
  const excess = a.connections.length - i + b.connections.length - j;
  for (i = j = 0; i < a.nodes.length && j < b.nodes.length;) {
    const one = a.nodes[i], other = b.nodes[j];
    if (one.id === other.id) {
      difference += Math.abs(one.bias - other.bias) + (one.activation !== other.activation) + (one.aggregation !== other.aggregation);
      matching++;
    }
    i += one.id <= other.id;
    j += other.id <= one.id;
  }
  const size = Math.max(a.connections.length, b.connections.length);
  const scale = size >= small && size > 0 ? 1 / size : 1;
  return (c1 * excess + c2 * disjoint) * scale + c3 * (matching ? difference / matching : 0);
}

/**
 * Return the species of a generation: {list: [{id, founded, improved, best}], member, threshold, nextId}.
 * Each genome joins the first species whose representative is closer than the threshold, else it founds one.
 */
export function speciate(genomes, table, representatives, generation, rules) {
  const list = [...table.list], models = [...representatives];
  let nextId = table.nextId;
  const member = genomes.map(genome => {
    const at = models.findIndex(model => distance(genome, model, rules) < table.threshold);
    if (at >= 0) return at;
    models.push(genome);
    list.push({ id: nextId++, founded: generation, improved: generation, best: -Infinity });
    return list.length - 1;
  });
  const populated = list.map((_, s) => member.includes(s)), count = populated.filter(Boolean).length;
  const { target, threshold_step: step } = rules;
  const still = target === 0 || count === target;
  const threshold = still ? table.threshold : Math.max(table.threshold + (count > target ? step : -step), step);
  return keep({ list, member, threshold, nextId }, populated);
}

/** The table without the species whose mask is false. */
export function keep(table, mask) {
  let next = 0;
  const position = mask.map(stays => (stays ? next++ : -1));
  return { ...table, list: table.list.filter((_, s) => mask[s]), member: table.member.map(s => position[s]) };
}

/** Sort a generation by species, then best first; the mean of a species is the sum of the shared fitness f / |S|. */
export function rank(table, score) {
  return table.list.map((_, s) => {
    const rows = table.member.flatMap((at, row) => (at === s ? [row] : [])), total = rows.reduce((sum, row) => sum + score[row], 0);
    rows.sort((a, b) => score[b] - score[a]); // stable
    return { rows, best: score[rows[0]], mean: total / rows.length };
  });
}

/** The table with new best scores. */
export function remember(table, ranking, generation) {
  const list = table.list.map((one, s) => (ranking[s].best > one.best ? { ...one, best: ranking[s].best, improved: generation } : one));
  return { ...table, list };
}

const bestFirst = values => values.map((_, i) => i).sort((a, b) => values[b] - values[a]);

/** Which species may have offspring: those that improved lately, and the best ones; with `refocus` the two best. */
export function breeders(table, generation, refocus, { max_stagnation: most, elitism }) {
  const best = bestFirst(table.list.map(one => one.best)).slice(0, refocus ? 2 : elitism);
  return table.list.map((one, s) => best.includes(s) || (!refocus && generation - one.improved < most));
}

/** Divide `total` children in proportion to `shares`, at least `least` each if possible. */
export function apportion(shares, total, least) {
  const count = shares.length;
  if (count > total) {
    const best = new Set(bestFirst(shares).slice(0, total));
    return shares.map((_, s) => Number(best.has(s)));
  }
  const floor = Math.min(least, Math.floor(total / count)), whole = shares.reduce((a, b) => a + b, 0);
  const ideal = shares.map(share => (whole > 0 ? (total * share) / whole : total / count));
  const counts = ideal.map(number => Math.max(floor, Math.trunc(number)));
  const spare = () => total - counts.reduce((a, b) => a + b, 0);
  if (spare() > 0) {
    // Species below their ideal number get a second child only after all have one.
    const gaps = ideal.map((number, s) => number - counts[s]), below = gaps.filter(gap => gap > 0).length;
    for (const s of bestFirst(gaps).slice(0, Math.min(spare(), below))) counts[s]++;
  }
  for (let left; (left = spare()) !== 0;) {
    const sign = Math.sign(left); // the species furthest from its ideal number gains or loses one child
    const gaps = ideal.map((number, s) => (sign > 0 || counts[s] > floor ? sign * (number - counts[s]) : -Infinity));
    counts[gaps.indexOf(Math.max(...gaps))] += sign;
  }
  return counts;
}

/** Choose elites and parents of all children: [{first, second, tie, mutates}]. */
export function plan(ranking, allowed, score, firstId, key, { population, reproduction: rules }) {
  const chosen = ranking.flatMap((_, s) => (allowed[s] ? [s] : [])), worst = score.reduce((a, b) => Math.min(a, b));
  const quotas = apportion(chosen.map(s => ranking[s].mean - worst), population, rules.min_species);
  const champions = chosen.map(s => ranking[s].rows[0]), parents = [];
  chosen.forEach((s, at) => {
    const { rows } = ranking[s], quota = quotas[at];
    const elites = rows.length >= rules.elitism_from ? Math.min(rules.elitism, rows.length, quota) : 0;
    const survivors = Math.min(Math.max(2, Math.ceil(rows.length * rules.survival)), rows.length);
    for (let i = 0; i < quota; i++) {
      if (i < elites) parents.push({ first: rows[i], second: -1, tie: false, mutates: false });
      else parents.push(paired(new Stream(key, firstId + parents.length), rows, survivors, champions, score, rules));
    }
  });
  return parents;
}

function paired(stream, rows, survivors, champions, score, { crossover, interspecies }) {
  let first = rows[stream.below(survivors)], second = -1;
  if (stream.uniform() < crossover) {
    second = rows[stream.below(survivors)];
    if (stream.uniform() < interspecies) second = champions[stream.below(champions.length)];
  }
  if (second === first) second = -1;
  if (second >= 0 && score[second] > score[first]) [first, second] = [second, first];
  return { first, second, tie: second >= 0 && score[first] === score[second], mutates: true };
}
