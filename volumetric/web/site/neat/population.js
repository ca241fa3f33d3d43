// Classic NEAT (Stanley and Miikkulainen 2002) as `volumetric/evolution/population.py` and `generation_run.py` run it:
// ask for a generation, evaluate it on the GPU, tell its fitness, breed. Equal seeds and problems give equal runs; the first
// generation is drawn otherwise than Python's, later ones are bred by the same random numbers.

import { InputError } from "../errors.js";
import { RandomStream } from "../random.js";
import { ACTIVATIONS, AGGREGATIONS, genomeJson } from "./genome.js";
import { breed, fresh, Innovations } from "./breed.js";
import { GpuGenomes } from "./gpu_genomes.js";
import { PROBLEMS } from "./problems.js";
import { breeders, keep, plan, rank, remember, speciate } from "./species.js";
import { Stream } from "./stream.js";

const BREEDING = 0; // the stream of breeding, as in generation_run.py

/** A population that evolves. */
export default class Population {
  #gpu;
  #ranking = null;
  #improved = 0;

  /**
   * @param {object | null} model a network of the kind "population"; null: genomes are bred, and somebody else evaluates them
   * @param {object} options
   * @param {string | object} [options.problem] "xor", "cartpole", or an object like those of problems.js; else that of the export
   * @param {number} [options.seed] of all random numbers
   * @param {object} [options.config] like `EvolutionConfig.to_dict()`; missing values are those of the export
   * @param {object[]} [options.genomes] the first generation; else it is drawn
   */
  constructor(model, { problem = model?.info.population?.evolution?.problem ?? "xor", seed = 1, config = {}, genomes = null } = {}) {
    const base = model?.info.population?.evolution?.config ?? {};
    this.problem = typeof problem === "string" ? PROBLEMS[problem] : problem;
    if (!this.problem) throw new InputError(`There is no problem ${JSON.stringify(problem)}.`, `There are: ${Object.keys(PROBLEMS).join(", ")}.`);
    this.seed = seed;
    this.config = { ...base, ...config };
    for (const part of ["genome", "mutation", "species", "reproduction"]) this.config[part] = { ...base[part], ...config[part] };
    this.settings = settingsOf(this.config, this.problem);
    const { inputs, outputs } = this.problem, { recurrent, steps } = this.config.genome;
    /** What genomes have in common: `GenomeInterface` in Python. */
    this.interface = { inputs, outputs, recurrent: recurrent === true, steps: steps ?? 1 };
    this.#gpu = model ? new GpuGenomes(model, this.interface) : null;
    this.innovations = new Innovations(inputs + outputs, inputs * outputs);
    this.genomes = genomes ?? this.#first();
    this.generation = 0;
    this.fitness = null;
    this.champion = null;
    this.species = speciate(this.genomes, { list: [], member: [], threshold: this.config.species.threshold, nextId: 0 }, [], 0, this.config.species);
  }

  /** Whether the champion reaches the problem's goal. */
  get solved() {
    return this.champion !== null && this.champion.fitness >= this.problem.goal;
  }

  /** Breed if the present generation has been evaluated, evaluate the new one, and return what came of it. */
  async step() {
    if (this.fitness) this.breed();
    this.#gpu.upload(this.genomes);
    this.tell(await this.problem.evaluate(this.#gpu, this.genomes, this.generation, this.seed));
    if (this.problem.confirm && this.solved && this.champion.generation === this.generation) {
      this.champion.fitness = await this.problem.confirm(this.#gpu, this.champion.genome, this.seed);
    }
    return this.summary();
  }

  /** Set the fitness of the present generation; genomes whose fitness is not finite get the worst one. */
  tell(fitness) {
    const worst = fitness.reduce((least, value) => (Number.isFinite(value) && value < least ? value : least), Infinity);
    if (worst === Infinity) throw new InputError("No genome has a finite fitness.");
    const score = Array.from(fitness, value => (Number.isFinite(value) ? value : worst));
    const best = score.indexOf(score.reduce((a, b) => Math.max(a, b)));
    if (this.champion === null || score[best] > this.champion.fitness) {
      this.#improved = this.generation;
      this.champion = { genome: this.genomes[best], fitness: score[best], generation: this.generation };
    }
    this.#ranking = rank(this.species, score);
    this.species = remember(this.species, this.#ranking, this.generation);
    this.fitness = score;
  }

  /** Replace the evaluated generation with its children. */
  breed() {
    const { config, generation, fitness: score } = this, ranking = this.#ranking;
    const random = this.#random(generation + 1);
    const parentKey = random.takeWord(), geneKey = random.takeWord();
    const patience = config.species.refocus_after, refocus = patience > 0 && generation - this.#improved >= patience;
    const allowed = breeders(this.species, generation, refocus, config.species);
    const picks = ranking.map(({ rows }) => rows[Math.floor(random.take() * rows.length)]);
    const firstId = (generation + 1) * this.genomes.length;
    const parents = plan(ranking, allowed, score, firstId, parentKey, config);
    this.innovations.beginGeneration();
    const children = breed(this.genomes, parents, firstId, geneKey, this.settings, this.innovations);
    const representatives = picks.filter((_, s) => allowed[s]).map(row => this.genomes[row]);
    this.species = speciate(children, keep(this.species, allowed), representatives, generation + 1, config.species);
    this.genomes = children;
    this.fitness = this.#ranking = null;
    this.generation = generation + 1;
    if (refocus) this.#improved = generation;
  }

  /** What a page shows of the present generation. */
  summary() {
    const { generation, fitness, species, champion, genomes } = this;
    const sizes = species.list.map(({ id }, s) => ({ id, size: species.member.filter(at => at === s).length }));
    const nodes = genomes.reduce((sum, genome) => sum + genome.nodes.length, 0) / genomes.length;
    const mean = fitness.reduce((a, b) => a + b, 0) / fitness.length;
    return { generation, best: fitness.reduce((a, b) => Math.max(a, b)), mean, nodes, species: sizes, champion, solved: this.solved };
  }

  /** The champion as JSON, which `Genome.load` of Python reads. */
  championJson() {
    if (!this.champion) throw new InputError("There is no champion before the first generation.");
    return genomeJson(this.champion.genome, this.interface);
  }

  /** The numbers of `volumetric.base.rng.generator(seed, BREEDING, …)`: the words of the seed, filled up to four, then the others. */
  #random(...stream) {
    return new RandomStream([this.seed >>> 0, Math.floor(this.seed / 2 ** 32), 0, 0, BREEDING, ...stream]);
  }

  /** Minimal genomes with random weights: `pool.py`, `first_pool`, with other random numbers. */
  #first() {
    const { settings } = this, { inputs, outputs, aggregation } = settings, key = this.#random().takeWord();
    return Array.from({ length: this.config.population }, (_, g) => {
      const stream = new Stream(key, g);
      const nodes = Array.from({ length: outputs }, (_, o) => ({ id: inputs + o, activation: settings.outputActivation, aggregation, bias: fresh("bias", settings, stream) }));
      const connections = Array.from({ length: inputs * outputs }, (_, i) => ({
        innovation: i, source: Math.floor(i / outputs), target: inputs + (i % outputs), weight: fresh("weight", settings, stream), enabled: true,
      }));
      return { nodes, connections };
    });
  }
}

/** A configuration with codes for names: `pool.py`, `settings_of`. */
function settingsOf({ genome, mutation, reproduction }, { inputs, outputs, activation = "steep_sigmoid" }) {
  const inner = genome.activation ?? activation, code = (names, name) => names.indexOf(name);
  return {
    ...mutation, disable: reproduction.disable, inputs, outputs, recurrent: genome.recurrent === true,
    activation: code(ACTIVATIONS, inner), outputActivation: code(ACTIVATIONS, genome.output_activation ?? inner), aggregation: code(AGGREGATIONS, genome.aggregation),
    activations: mutation.activations.map(name => code(ACTIVATIONS, name)), aggregations: mutation.aggregations.map(name => code(AGGREGATIONS, name)),
  };
}
