"""Reproduction of genomes on the CPU: pairing, crossover and mutation of a whole generation in one call.

Genomes are laid out as in `evolution.kernels.genomes`. Each child draws from its own stream, keyed by its id,
so that its genes depend neither on its siblings nor on its row in the array.
"""

from __future__ import annotations

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.splitmix64 import below, seed_stream, uniform
from volumetric.evolution.kernels.genome_crossover import cross
from volumetric.evolution.kernels.mutation import mutate


@kernel
def pair(order, starts, survivors, champions, score, species, crossover, interspecies, first_id, key, parents):
    """Choose the parents of every child whose row of `parents` is negative.

    Parameters
    ----------
    order : int64 [genomes]; genomes by species, fitter first
    starts, survivors : int64 [species]; start of a species in `order`, and number of possible parents in it
    champions : int64 [n]; best genome of each species that may breed
    score : float64 [genomes]; higher is better
    species : int64 [children]; the species of each child
    crossover, interspecies : probabilities of two parents, and of the second coming from another species
    first_id, key : as for `breed`, with another key
    """
    stream = np.empty(1, np.uint64)
    for child in range(parents.shape[0]):
        if parents[child, 0] >= 0:
            continue
        seed_stream(stream, key, first_id + child)
        s = species[child]
        a = order[starts[s] + below(stream, survivors[s])]
        b = -1
        if uniform(stream) < crossover:
            b = order[starts[s] + below(stream, survivors[s])]
            if uniform(stream) < interspecies:
                b = champions[below(stream, champions.shape[0])]
        if b == a:
            b = -1
        if b >= 0 and score[b] > score[a]:
            a, b = b, a
        parents[child, 0] = a
        parents[child, 1] = b
        parents[child, 2] = b >= 0 and score[a] == score[b]


@kernel
def breed(
    nodes, connections, sizes, parents, mutates, first_id, key, settings, activations, aggregations, table, counters,
    blank, used, out_nodes, out_connections, out_sizes,
):  # fmt: skip
    """Create one child for each row of `parents`.

    Parameters
    ----------
    parents : int64 [children, 3]; the fitter parent, the other or -1 for a clone, and whether they are equally fit
    mutates : uint8 [children]; 0: the child is not mutated
    first_id : id of the first child
    key : uint64 key of the generation's streams
    settings : record of rates and limits (``evolution.config``)
    table, counters : as for `mark`, with space for four events per child
    blank : one connection record of scratch
    used : uint8 scratch, longer than any child has nodes
    out_nodes, out_connections, out_sizes : the children, with space for both parents' genes, one more node and three
        more connections
    """
    stream = np.empty(1, np.uint64)
    for child in range(parents.shape[0]):
        seed_stream(stream, key, first_id + child)
        a, b = parents[child, 0], parents[child, 1]
        if b >= 0:
            cross(
                nodes, connections, sizes, a, b, parents[child, 2] != 0, settings[0], stream, out_nodes,
                out_connections, out_sizes, child, used,
            )  # fmt: skip
        else:
            for n in range(sizes[a, 0]):
                out_nodes[child, n] = nodes[a, n]
            for j in range(sizes[a, 1]):
                out_connections[child, j] = connections[a, j]
            out_sizes[child] = sizes[a]
        if mutates[child]:
            mutate(
                out_nodes, out_connections, out_sizes, child, settings[0], activations, aggregations, table, counters,
                stream, blank, used,
            )  # fmt: skip
