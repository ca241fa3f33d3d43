"""Genomes linked once for many activations: everything that depends only on structure is precomputed.

Genomes are laid out as in `volumetric.evolution.kernels.genome_kernels`; a *row* is one genome. Linking costs more than
one activation of a sample, and environments ask for hundreds in a row.
"""

from __future__ import annotations

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.evolution.kernels.genome_kernels import _fire, _link, _order, squash


@kernel
def link(nodes, connections, sizes, width, outputs, recurrent, first, last, starts, sources, weights, order, scratch):
    """Link the genomes ``first : last``.

    Parameters
    ----------
    width, outputs : numbers of inputs and outputs of a genome
    starts : int32 [genomes, nodes + 1]; receives the start of the connections into each node
    sources : int32 [genomes, connections]; receives the slot that each enabled connection reads
    weights : float64 [genomes, connections]
    order : int32 [genomes, nodes + 1]; receives the number of nodes to fire, then their indices, each after its
        sources; for recurrent genomes all nodes
    scratch : int32 [3, nodes + 1]
    """
    for g in range(first, last):
        count = sizes[g, 0]
        _link(nodes, connections, g, count, sizes[g, 1], width, starts[g], sources[g], weights[g])
        if recurrent:
            order[g, 0] = count
            for n in range(count):
                order[g, n + 1] = n
        else:
            order[g, 0] = _order(
                starts[g], sources[g], width, outputs, order[g, 1:], scratch[0], scratch[1], scratch[2], count
            )


@kernel
def _gather(gene, values, first, last, sources, weights):
    """Return the aggregated inputs of a node plus its bias."""
    if gene.aggregation == 0 or gene.aggregation == 1:
        total = 0.0
        for k in range(first, last):
            total += weights[k] * values[sources[k]]
        if gene.aggregation == 1 and last > first:
            total /= last - first
        return total + gene.bias
    total = weights[first] * values[sources[first]] if last > first else 0.0
    for k in range(first + 1, last):
        term = weights[k] * values[sources[k]]
        if gene.aggregation == 2:
            total *= term
        elif gene.aggregation == 3:
            total = max(total, term)
        else:
            total = min(total, term)
    return total + gene.bias


@kernel
def fire(nodes, g, starts, sources, weights, order, width, values):
    """Fire the nodes of a feed-forward genome, each after its sources; ``values[:width]`` are its inputs."""
    for k in range(order[g, 0]):
        n = order[g, k + 1]
        gene = nodes[g, n]
        total = _gather(gene, values, starts[g, n], starts[g, n + 1], sources[g], weights[g])
        values[width + n] = squash(gene.activation, total)


@kernel
def update(nodes, g, starts, sources, weights, order, width, steps, values, after):
    """Update all nodes of a recurrent genome at once, `steps` times; ``values[width:]`` is its state."""
    count = order[g, 0]
    for _ in range(steps):
        for n in range(count):
            gene = nodes[g, n]
            total = _gather(gene, values, starts[g, n], starts[g, n + 1], sources[g], weights[g])
            after[n] = squash(gene.activation, total)
        for n in range(count):
            values[width + n] = after[n]


@kernel
def step_feed_forward(nodes, starts, sources, weights, order, inputs, shared, rows, first, last, values, out):
    """Compute outputs of the genomes ``rows[first : last]``; each node fires for a block of samples, which vectorises.

    Parameters
    ----------
    starts, sources, weights, order : from `link`
    inputs : float64 [genomes or 1, samples, inputs]; with `shared` all genomes read row 0
    values : float64 scratch [inputs + nodes, samples of a block]
    out : float64 [genomes, samples, outputs]
    """
    width, samples, block = inputs.shape[2], inputs.shape[1], values.shape[1]
    for i in range(first, last):
        g = rows[i]
        row = 0 if shared else g
        into, strengths = sources[g], weights[g]
        for start in range(0, samples, block):
            count = min(block, samples - start)
            part = values[:, :count]
            for b in range(count):
                for k in range(width):
                    part[k, b] = inputs[row, start + b, k]
            for k in range(order[g, 0]):
                n = order[g, k + 1]
                _fire(part, part, width + n, nodes[g, n], starts[g, n], starts[g, n + 1], into, strengths)
            for b in range(count):
                for k in range(out.shape[2]):
                    out[g, start + b, k] = part[width + k, b]


@kernel
def step_recurrent(
    nodes, starts, sources, weights, order, inputs, shared, steps, rows, first, last, values, after, state, out
):
    """Like `step_feed_forward`, with `steps` updates of all nodes at once from and to `state`.

    Parameters
    ----------
    after : float64 scratch, like `values`
    state : float64 [genomes, nodes, samples]
    """
    width, samples, block = inputs.shape[2], inputs.shape[1], values.shape[1]
    for i in range(first, last):
        g = rows[i]
        row = 0 if shared else g
        into, strengths = sources[g], weights[g]
        for start in range(0, samples, block):
            count = min(block, samples - start)
            part, other = values[:, :count], after[:, :count]
            for b in range(count):
                for k in range(width):
                    part[k, b] = inputs[row, start + b, k]
            for n in range(order[g, 0]):
                for b in range(count):
                    part[width + n, b] = state[g, n, start + b]
            for _ in range(steps):
                for n in range(order[g, 0]):
                    _fire(part, other, width + n, nodes[g, n], starts[g, n], starts[g, n + 1], into, strengths)
                for n in range(order[g, 0]):
                    for b in range(count):
                        part[width + n, b] = other[width + n, b]
            for n in range(order[g, 0]):
                for b in range(count):
                    state[g, n, start + b] = part[width + n, b]
            for b in range(count):
                for k in range(out.shape[2]):
                    out[g, start + b, k] = part[width + k, b]
