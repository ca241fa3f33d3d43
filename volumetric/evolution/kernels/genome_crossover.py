"""Crossover of genomes, aligned by innovation number; genomes are laid out as in `evolution.kernels.genomes`."""

from __future__ import annotations

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.splitmix64 import uniform
from volumetric.evolution.kernels.genome_kernels import closes_cycle, insert_connection, is_connected, node_index


@kernel
def _inherit_connections(connections, sizes, a, b, tie, settings, stream, out_connections, out_sizes, child):
    """Merge by innovation: matching genes from a random parent, others from `a`, at random if `tie`."""
    i = j = 0
    out_sizes[child, 1] = 0
    while i < sizes[a, 1]:
        while j < sizes[b, 1] and connections[b, j].innovation < connections[a, i].innovation:
            j += 1
        matching = j < sizes[b, 1] and connections[b, j].innovation == connections[a, i].innovation
        if not matching and tie and uniform(stream) < 0.5:
            i += 1
            continue
        k = out_sizes[child, 1]
        out_connections[child, k] = connections[a, i]
        if matching:
            if uniform(stream) < 0.5:
                out_connections[child, k] = connections[b, j]
            disabled = not (connections[a, i].enabled and connections[b, j].enabled)
            out_connections[child, k].enabled = not (disabled and uniform(stream) < settings.disable_rate)
        out_sizes[child, 1] += 1
        i += 1


@kernel
def _inherit_unmatched(connections, sizes, a, b, settings, stream, nodes, out_connections, out_sizes, child, used):
    """Inherit genes that only `b` has at random, unless their nodes are connected or they would close a cycle."""
    i = 0
    for j in range(sizes[b, 1]):
        gene = connections[b, j]
        while i < sizes[a, 1] and connections[a, i].innovation < gene.innovation:
            i += 1
        if i < sizes[a, 1] and connections[a, i].innovation == gene.innovation:
            continue
        if uniform(stream) < 0.5:
            continue
        count = out_sizes[child, 1]
        if is_connected(out_connections, child, count, gene.source, gene.target):
            continue
        if settings.recurrent or not closes_cycle(
            nodes, out_connections, child, out_sizes[child, 0], count, gene.source, gene.target, used
        ):
            insert_connection(out_connections, out_sizes, child, gene)


@kernel
def _inherit_nodes(nodes, sizes, a, b, tie, stream, out_nodes, out_sizes, child):
    """Inherit the records of `a`, and of `b` if `tie`; if both have a record, a random one."""
    i = j = n = 0
    while i < sizes[a, 0] or j < sizes[b, 0]:
        from_a = i < sizes[a, 0] and (j >= sizes[b, 0] or nodes[a, i].id <= nodes[b, j].id)
        from_b = j < sizes[b, 0] and (i >= sizes[a, 0] or nodes[b, j].id <= nodes[a, i].id)
        if from_a and from_b:
            out_nodes[child, n] = nodes[b, j]
            if uniform(stream) < 0.5:
                out_nodes[child, n] = nodes[a, i]
            n += 1
        elif from_a:
            out_nodes[child, n] = nodes[a, i]
            n += 1
        elif tie:
            out_nodes[child, n] = nodes[b, j]
            n += 1
        i += from_a
        j += from_b
    out_sizes[child, 0] = n


@kernel
def _drop_unused_nodes(nodes, connections, sizes, child, outputs, used):
    """Remove the hidden nodes without connections in the child."""
    count = sizes[child, 0]
    used[: count + 1] = 0
    for j in range(sizes[child, 1]):
        used[node_index(nodes, child, count, connections[child, j].source)] = 1
        used[node_index(nodes, child, count, connections[child, j].target)] = 1
    remaining = 0
    for n in range(count):
        if n < outputs or used[n]:
            nodes[child, remaining] = nodes[child, n]
            remaining += 1
    sizes[child, 0] = remaining


@kernel
def cross(nodes, connections, sizes, a, b, tie, settings, stream, out_nodes, out_connections, out_sizes, child, used):
    """Write the child of rows `a` (the fitter, unless `tie`) and `b` to row `child` of the output."""
    _inherit_nodes(nodes, sizes, a, b, tie, stream, out_nodes, out_sizes, child)
    _inherit_connections(connections, sizes, a, b, tie, settings, stream, out_connections, out_sizes, child)
    if tie:
        _inherit_unmatched(
            connections, sizes, a, b, settings, stream, out_nodes, out_connections, out_sizes, child, used
        )
    _drop_unused_nodes(out_nodes, out_connections, out_sizes, child, settings.outputs, used)
