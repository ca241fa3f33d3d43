// A generation on the GPU: all genomes for all samples in one dispatch, in float32
// (`volumetric/evolution/linked_pool.py`, `volumetric/devices/gpu/shaders/genomes.wgsl`).

import { InputError } from "../errors.js";
import { linked } from "./genome.js";

const FIRED_BYTES = 20, EDGE_BYTES = 8;
const COPY = 4; // the kinds of a node that hands on what it reads: linear, sum

export class GpuGenomes {
  #model;
  #about;
  #genomes = 0;
  #interface;
  #slots = 0;
  #edges = 0;

  /** @param {{inputs: number, outputs: number, recurrent: boolean, steps: number}} common what all genomes have in common */
  constructor(model, common) {
    if (!model.info.population?.evolution) throw new InputError("This network is no population that evolves.", "Export a NeatPopulation.");
    this.#model = model;
    this.#about = model.info.population;
    this.#interface = common;
  }

  /** Write genomes to the GPU. */
  upload(genomes) {
    const { inputs, outputs, recurrent, steps } = this.#interface, { genomes: most, most_edges: mostConnections, evolution, buffers } = this.#about;
    const nodes = Math.max(...genomes.map(genome => genome.nodes.length)), links = genomes.map(genome => linked(genome, this.#interface));
    const widths = links.map(link => link.reduce((sum, { sources }) => sum + sources.length, 0)), room = evolution.config.genome;
    for (const [count, limit, what] of [
      [genomes.length, most, "genomes"], [nodes, evolution.nodes, "nodes in a genome"], [Math.max(...widths), mostConnections, "connections in a genome"],
      [inputs, this.#about.inputs, "inputs"], [outputs, this.#about.outputs, "outputs"], [recurrent ? steps : 0, room.recurrent ? room.steps : 0, "updates of recurrent nodes"],
    ]) {
      if (count > limit) throw new InputError(`There are ${count} ${what}; this export has room for ${limit}.`, "Export the population with more room.");
    }
    const parts = links.map((link, g) => (recurrent ? together(link, genomes[g], inputs, nodes, steps) : inTurn(link, genomes[g], inputs)));
    const heads = Uint32Array.from([0, ...parts.map(({ fired }) => fired.length)]);
    for (let g = 1; g < heads.length; g++) heads[g] += heads[g - 1];
    const total = parts.reduce((sum, { edges }) => sum + edges.length, 0);
    const fired = new DataView(new ArrayBuffer(FIRED_BYTES * Math.max(1, heads.at(-1)))), edges = new DataView(new ArrayBuffer(EDGE_BYTES * Math.max(1, total)));
    let at = 0, first = 0;
    for (const part of parts) {
      for (const { slot, kinds, from, to, bias } of part.fired) {
        [slot, kinds, first + from, first + to].forEach((word, i) => fired.setUint32(at + 4 * i, word, true));
        fired.setFloat32(at + 16, bias, true);
        at += FIRED_BYTES;
      }
      part.edges.forEach(([source, weight], e) => {
        edges.setUint32(EDGE_BYTES * (first + e), source, true);
        edges.setFloat32(EDGE_BYTES * (first + e) + 4, weight, true);
      });
      first += part.edges.length;
    }
    this.#genomes = genomes.length;
    this.#slots = inputs + (recurrent ? 2 : 1) * nodes;
    this.#edges = Math.max(...parts.map(part => part.edges.length));
    for (const [name, words] of [[buffers.heads, heads], [buffers.fired, fired], [buffers.edges, edges]]) void this.#model.write(name, words);
  }

  /**
   * Return the outputs [genomes, outputs, samples] for inputs [inputs, samples], or [genomes, inputs, samples] unless `shared`.
   * Nodes of recurrent genomes begin at zero, or, with `goesOn`, where the last activation of as many samples has left them.
   */
  async activate(x, samples, shared, goesOn = false) {
    const { inputs, outputs, recurrent } = this.#interface, { buffers } = this.#about, slots = this.#slots;
    if (samples > this.#about.samples) throw new InputError(`There are ${samples} samples; this export has room for ${this.#about.samples}.`);
    void this.#model.write(buffers.dims, Uint32Array.of(samples, inputs, outputs, slots, Number(shared), this.#genomes, this.#edges, 0));
    void this.#model.write(buffers.x, x);
    if (recurrent && !goesOn) void this.#model.write(buffers.values, new Float32Array(this.#genomes * slots * samples));
    await this.#model.submit(this.#about.program);
    return new Float32Array(await this.#model.read(buffers.y, { bytes: 4 * this.#genomes * outputs * samples }));
  }
}

/** What the kernel fires of a feed-forward genome: its nodes, each after its sources. */
function inTurn(link, genome, inputs) {
  const fired = [], edges = [];
  for (const { node, sources, weights } of link) {
    const { activation, aggregation, bias } = genome.nodes[node], from = edges.length;
    sources.forEach((source, i) => edges.push([source, weights[i]]));
    fired.push({ slot: inputs + node, kinds: activation + 256 * aggregation, from, to: edges.length, bias });
  }
  return { fired, edges };
}

/**
 * What the kernel fires of a recurrent genome, whose nodes change at once: copies of all nodes, in slots of their own, then the
 * nodes, which read the copies; as often as an activation updates them.
 */
function together(link, genome, inputs, nodes, steps) {
  const copies = genome.nodes.map((_, n) => ({ slot: inputs + nodes + n, kinds: COPY, from: n, to: n + 1, bias: 0 }));
  const read = inTurn(link, genome, inputs), before = copies.length;
  const changed = read.fired.map(one => ({ ...one, from: before + one.from, to: before + one.to }));
  const edges = [...copies.map((_, n) => [inputs + n, 1]), ...read.edges.map(([source, weight]) => [source < inputs ? source : source + nodes, weight])];
  return { fired: Array.from({ length: steps }, () => [...copies, ...changed]).flat(), edges };
}
