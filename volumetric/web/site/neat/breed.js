// Children: mutation, crossover, historical markings of new genes. The algorithm, and the order in which it draws random
// numbers, are those of `volumetric/evolution/kernels/mutation.py`, `genome_crossover.py` and `breeding.py`: the same
// parents and key give the same children.

import { closesCycle, insertConnection, isConnected } from "./genome.js";
import { Stream } from "./stream.js";

const TRIES = 20; // random pairs of nodes to try for a new connection

/** Node ids and innovation numbers: equal changes within a generation get equal ones. */
export class Innovations {
  #events = new Map();

  constructor(nodes, connections) {
    this.next = [nodes, connections];
  }

  beginGeneration() {
    this.#events.clear();
  }

  /** The number of an event; kind 0 counts nodes, 1 connections. */
  mark(kind, first, second) {
    const event = `${first} ${second}`;
    if (!this.#events.has(event)) this.#events.set(event, this.next[kind]++);
    return this.#events.get(event);
  }
}

/** Return one child for each {first, second (-1: none), tie, mutates}; `firstId` and the key select their streams. */
export function breed(genomes, parents, firstId, key, settings, innovations) {
  return parents.map(({ first, second, tie, mutates }, child) => {
    const stream = new Stream(key, firstId + child), a = genomes[first];
    const genome = second < 0 ? { nodes: [...a.nodes], connections: [...a.connections] } : cross(a, genomes[second], tie, settings, stream);
    if (mutates) mutate(genome, settings, innovations, stream);
    return genome;
  });
}

/** Return the child of a genome and another one, which is not fitter. */
export function cross(a, b, tie, settings, stream) {
  const nodes = [];
  for (let i = 0, j = 0; i < a.nodes.length || j < b.nodes.length;) {
    const one = a.nodes[i], other = b.nodes[j];
    const fromA = one !== undefined && !(other?.id < one.id), fromB = other !== undefined && !(one?.id < other.id);
    if (fromA && fromB) nodes.push(stream.uniform() < 0.5 ? one : other);
    else if (fromA) nodes.push(one);
    else if (tie) nodes.push(other);
    i += fromA;
    j += fromB;
  }
  const theirs = new Map(b.connections.map(gene => [gene.innovation, gene])), connections = [];
  for (const gene of a.connections) {
    const match = theirs.get(gene.innovation);
    if (!match && tie && stream.uniform() < 0.5) continue;
    if (!match) {
      connections.push(gene);
      continue;
    }
    const chosen = stream.uniform() < 0.5 ? match : gene, disabled = !(gene.enabled && match.enabled);
    connections.push({ ...chosen, enabled: !(disabled && stream.uniform() < settings.disable) });
  }
  if (tie) {
    const mine = new Set(a.connections.map(gene => gene.innovation));
    for (const gene of b.connections) {
      if (mine.has(gene.innovation) || stream.uniform() < 0.5 || isConnected(connections, gene.source, gene.target)) continue;
      if (settings.recurrent || !closesCycle(connections, gene.source, gene.target)) insertConnection(connections, gene);
    }
  }
  const used = new Set(connections.flatMap(gene => [gene.source, gene.target]));
  return { nodes: nodes.filter((node, n) => n < settings.outputs || used.has(node.id)), connections };
}

/** Mutate structure, then parameters. */
export function mutate(child, settings, innovations, stream) {
  if (stream.uniform() < settings.add_node) addNode(child, settings, innovations, stream);
  if (stream.uniform() < settings.add_connection) addConnection(child, settings, innovations, stream);
  if (stream.uniform() < settings.delete_node) deleteNode(child, settings, stream);
  if (stream.uniform() < settings.delete_connection && child.connections.length) child.connections.splice(stream.below(child.connections.length), 1);
  const s = settings;
  child.connections = child.connections.map(gene => {
    const weight = vary(gene.weight, "weight", s, stream);
    const flips = s.enabled_rate > 0 && stream.uniform() < s.enabled_rate;
    return { ...gene, weight, enabled: gene.enabled !== flips };
  });
  child.nodes = child.nodes.map(gene => {
    const node = { ...gene, bias: vary(gene.bias, "bias", s, stream) };
    if (s.activation_rate > 0 && stream.uniform() < s.activation_rate) node.activation = s.activations[stream.below(s.activations.length)];
    if (s.aggregation_rate > 0 && stream.uniform() < s.aggregation_rate) node.aggregation = s.aggregations[stream.below(s.aggregations.length)];
    return node;
  });
}

const clamped = (value, low, high) => Math.min(Math.max(value, low), high);

/** A new weight or bias: within its limits, from the distribution of new ones. */
export function fresh(kind, s, stream) {
  return clamped(s[`${kind}_mean`] + s[`${kind}_stdev`] * stream.normal(), s[`${kind}_min`], s[`${kind}_max`]);
}

/** Replace a weight or bias, perturb it, or keep it. */
function vary(value, kind, s, stream) {
  const u = stream.uniform(), replace = s[`${kind}_replace`];
  if (u < replace) return fresh(kind, s, stream);
  if (u < replace + s[`${kind}_rate`]) return clamped(value + s[`${kind}_power`] * stream.normal(), s[`${kind}_min`], s[`${kind}_max`]);
  return value;
}

/** Split an enabled connection: weight 1 into the new node, the old weight out of it. */
function addNode(child, settings, innovations, stream) {
  const enabled = child.connections.filter(gene => gene.enabled);
  if (!enabled.length) return;
  const old = enabled[stream.below(enabled.length)], ids = new Set(child.nodes.map(node => node.id));
  // A genome that splits a connection again gets another node, shared by all genomes that split it a second time.
  let repeat = 0, id;
  do id = innovations.mark(0, -1 - repeat++, old.innovation); while (ids.has(id));
  child.connections[child.connections.indexOf(old)] = { ...old, enabled: false };
  const after = child.nodes.findIndex(node => node.id > id);
  child.nodes.splice(after < 0 ? child.nodes.length : after, 0, { id, activation: settings.activation, aggregation: settings.aggregation, bias: 0 });
  connect(child, old.source, id, 1, innovations);
  connect(child, id, old.target, old.weight, innovations);
}

/** Connect two unconnected nodes; in a feed-forward genome without closing a cycle, and its outputs feed nothing. */
function addConnection(child, settings, innovations, stream) {
  const { nodes, connections } = child, { inputs, recurrent } = settings, skipped = recurrent ? 0 : settings.outputs;
  for (let attempt = 0; attempt < TRIES; attempt++) {
    const pick = stream.below(inputs + nodes.length - skipped);
    const source = pick < inputs ? pick : nodes[pick - inputs + skipped].id;
    const target = nodes[stream.below(nodes.length)].id;
    if (isConnected(connections, source, target) || (!recurrent && closesCycle(connections, source, target))) continue;
    connect(child, source, target, fresh("weight", settings, stream), innovations);
    return;
  }
}

function connect(child, source, target, weight, innovations) {
  insertConnection(child.connections, { innovation: innovations.mark(1, source, target), source, target, weight, enabled: true });
}

/** Remove a hidden node and all its connections. */
function deleteNode(child, { outputs }, stream) {
  const hidden = child.nodes.length - outputs;
  if (!hidden) return;
  const [{ id }] = child.nodes.splice(outputs + stream.below(hidden), 1);
  child.connections = child.connections.filter(gene => gene.source !== id && gene.target !== id);
}
