// A generation on the GPU: all genomes for all samples in one dispatch, in float32
// (`volumetric/evolution/linked_pool.py`, `volumetric/devices/gpu/shaders/genomes.wgsl`).

import { InputError } from "../errors.js";
import { linked } from "./genome.js";

const FIRED_BYTES = 20, EDGE_BYTES = 8;

export class GpuGenomes {
  #model;
  #about;
  #genomes = 0;
  #sizes = [0, 0, 0]; // inputs, outputs, slots
  #edges = 0;

  constructor(model) {
    if (!model.info.population?.evolution) throw new InputError("This network is no population that evolves.", "Export a NeatPopulation.");
    this.#model = model;
    this.#about = model.info.population;
  }

  /** Write genomes to the GPU. */
  upload(genomes, inputs, outputs) {
    const { genomes: most, most_edges: mostConnections, evolution, buffers } = this.#about, mostNodes = evolution.nodes;
    const nodes = Math.max(...genomes.map(genome => genome.nodes.length)), links = genomes.map(genome => linked(genome, inputs, outputs));
    const widest = Math.max(...links.map(link => link.reduce((sum, { sources }) => sum + sources.length, 0)));
    for (const [count, room, what] of [[genomes.length, most, "genomes"], [nodes, mostNodes, "nodes in a genome"], [widest, mostConnections, "connections in a genome"], [inputs, this.#about.inputs, "inputs"], [outputs, this.#about.outputs, "outputs"]]) {
      if (count > room) throw new InputError(`There are ${count} ${what}; this export has room for ${room}.`, "Export the population with more room.");
    }
    const heads = Uint32Array.from([0, ...links.map(({ length }) => length)]);
    for (let g = 1; g < heads.length; g++) heads[g] += heads[g - 1];
    const total = links.flat().reduce((sum, { sources }) => sum + sources.length, 0);
    const fired = new DataView(new ArrayBuffer(FIRED_BYTES * Math.max(1, heads.at(-1)))), edges = new DataView(new ArrayBuffer(EDGE_BYTES * Math.max(1, total)));
    let at = 0, edge = 0;
    links.forEach((link, g) => {
      for (const { node, sources, weights } of link) {
        const gene = genomes[g].nodes[node];
        [inputs + node, gene.activation + 256 * gene.aggregation, edge, edge + sources.length].forEach((word, i) => fired.setUint32(at + 4 * i, word, true));
        fired.setFloat32(at + 16, gene.bias, true);
        at += FIRED_BYTES;
        sources.forEach((source, i) => {
          edges.setUint32(EDGE_BYTES * edge, source, true);
          edges.setFloat32(EDGE_BYTES * edge++ + 4, weights[i], true);
        });
      }
    });
    this.#genomes = genomes.length;
    this.#sizes = [inputs, outputs, inputs + nodes];
    this.#edges = widest;
    for (const [name, words] of [[buffers.heads, heads], [buffers.fired, fired], [buffers.edges, edges]]) void this.#model.write(name, words);
  }

  /**
   * Return the outputs [genomes, outputs, samples] for inputs [inputs, samples], or [genomes, inputs, samples] unless `shared`.
   */
  async activate(x, samples, shared) {
    const [inputs, outputs, slots] = this.#sizes, { buffers } = this.#about;
    if (samples > this.#about.samples) throw new InputError(`There are ${samples} samples; this export has room for ${this.#about.samples}.`);
    void this.#model.write(buffers.dims, Uint32Array.of(samples, inputs, outputs, slots, Number(shared), this.#genomes, this.#edges, 0));
    void this.#model.write(buffers.x, x);
    await this.#model.submit(this.#about.program);
    return new Float32Array(await this.#model.read(buffers.y, { bytes: 4 * this.#genomes * outputs * samples }));
  }
}
