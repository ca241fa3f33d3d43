// What genomes are to do, with fitness as in `volumetric/evolution/problems`. A problem has `inputs`, `outputs`, `goal`
// (fitness that solves it), `activation` (of nodes, unless the configuration names one) and `evaluate(gpu, genomes, generation, seed)`, which gives the fitness of each genome.

import { fallen, forceOf, next } from "../cartpole_physics.js";
import { Stream } from "./stream.js";

const ROWS = [[0, 0], [1, 0], [0, 1], [1, 1]];
const STEPS = 500;

/** 4 − Σ (output − target)², solved at 3.9: `table_problem.py`, `xor`. */
export const xor = {
  name: "xor", inputs: 2, outputs: 1, goal: 0.975 * ROWS.length, activation: "steep_sigmoid",
  rows: ROWS,
  async evaluate(gpu, genomes) {
    const x = Float32Array.from([0, 1].flatMap(i => ROWS.map(row => row[i])));
    const y = await gpu.activate(x, ROWS.length, true);
    return genomes.map((_, g) => ROWS.length - ROWS.reduce((sum, [a, b], r) => sum + (y[g * ROWS.length + r] - (a ^ b)) ** 2, 0));
  },
};

/**
 * Steps for which the pole of CartPole-v1 stays up, 500 at most, from a first state of the generation: `gym.py`. All genomes
 * that still stand decide together, one dispatch a step; a genome that solves it must also balance `trials` other poles.
 */
export const cartpole = {
  name: "cartpole", inputs: 4, outputs: 1, goal: 475, trials: 20, activation: "tanh",
  async evaluate(gpu, genomes, generation, seed) {
    return play(gpu, genomes.map(() => firstState(seed, generation)));
  },
  /** The mean number of steps of one genome from many first states. */
  async confirm(gpu, genome, seed) {
    const players = Array.from({ length: this.trials }, () => genome);
    gpu.upload(players);
    const steps = await play(gpu, players.map((_, i) => firstState(seed, 2 ** 40 + i)));
    return steps.reduce((a, b) => a + b, 0) / steps.length;
  },
};

/** A first state: four numbers in −0.05 … 0.05. */
function firstState(seed, name) {
  const stream = new Stream(BigInt(seed), name);
  return Array.from({ length: 4 }, () => 0.1 * stream.uniform() - 0.05);
}

async function play(gpu, states) {
  const steps = states.map(() => 0), x = new Float32Array(4 * states.length);
  let standing = states.map((_, g) => g);
  for (let step = 1; step <= STEPS && standing.length; step++) {
    for (const g of standing) x.set(states[g], 4 * g);
    const y = await gpu.activate(x, 1, false, step > 1);
    standing = standing.filter(g => {
      states[g] = next(states[g], forceOf([y[g]]));
      steps[g] = step;
      return !fallen(states[g]);
    });
  }
  return steps;
}

export const PROBLEMS = { xor, cartpole };
