"""Mutation of genomes and historical markings of new genes; genomes are laid out as in `evolution.kernels.genomes`."""

from __future__ import annotations

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.splitmix64 import GOLDEN, below, mix, normal, u64, uniform
from volumetric.evolution.kernels.genome_kernels import closes_cycle, insert_connection, is_connected, node_index

i64 = np.int64
_TRIES = 20  # random pairs of nodes to try for a new connection


@kernel
def _place(first, second, last):
    return i64(mix(u64(first) * GOLDEN + u64(second)) & u64(last))


@kernel
def mark(table, counters, kind, first, second):
    """Return the historical number of the event (first, second): its existing number, or the next of its kind.

    `table` is an open-addressing hash table of int64 rows (first, second, number), free if number is negative, with
    a power of two of rows. Kind 0 counts nodes, kind 1 connections; `counters[2]` is the number of events in the table.
    """
    last = table.shape[0] - 1
    place = _place(first, second, last)
    while table[place, 2] >= 0:
        if table[place, 0] == first and table[place, 1] == second:
            return table[place, 2]
        place = (place + 1) & last
    table[place, 0] = first
    table[place, 1] = second
    table[place, 2] = counters[kind]
    counters[kind] += 1
    counters[2] += 1
    return table[place, 2]


@kernel
def rehash(old, table):
    """Copy all events of a full table into a larger, empty one."""
    last = table.shape[0] - 1
    for row in range(old.shape[0]):
        if old[row, 2] >= 0:
            place = _place(old[row, 0], old[row, 1], last)
            while table[place, 2] >= 0:
                place = (place + 1) & last
            table[place] = old[row]


@kernel
def _connect(connections, sizes, child, source, target, weight, table, counters, blank):
    blank[0].innovation = mark(table, counters, 1, source, target)
    blank[0].source = source
    blank[0].target = target
    blank[0].weight = weight
    blank[0].enabled = True
    insert_connection(connections, sizes, child, blank[0])


@kernel
def _vary(value, rate, replace, power, mean, stdev, low, high, stream):
    """Replace with probability `replace`, else perturb with probability `rate`; clamp."""
    u = uniform(stream)
    if u < replace:
        value = mean + stdev * normal(stream)
    elif u < replace + rate:
        value += power * normal(stream)
    else:
        return value
    return min(max(value, low), high)


@kernel
def _initialise_node(gene, identifier, settings):
    gene.id = identifier
    gene.bias = 0.0
    gene.activation = settings.activation
    gene.aggregation = settings.aggregation


@kernel
def _add_node(nodes, connections, sizes, child, settings, table, counters, stream, blank):
    """Split a random enabled connection: weight 1 into the new node, the old weight out of it."""
    enabled = 0
    for k in range(sizes[child, 1]):
        enabled += connections[child, k].enabled
    if enabled == 0:
        return
    skip = below(stream, enabled)
    j = 0
    while skip > 0 or not connections[child, j].enabled:
        skip -= connections[child, j].enabled
        j += 1
    old = connections[child, j].innovation
    source, target, weight = connections[child, j].source, connections[child, j].target, connections[child, j].weight
    # A genome that splits a connection again gets another node, shared by all genomes that split it a second time.
    repeat = 0
    node = mark(table, counters, 0, -1 - repeat, old)
    while node_index(nodes, child, sizes[child, 0], node) < sizes[child, 0]:
        repeat += 1
        node = mark(table, counters, 0, -1 - repeat, old)
    connections[child, j].enabled = False
    place = sizes[child, 0]
    while place > 0 and nodes[child, place - 1].id > node:
        nodes[child, place] = nodes[child, place - 1]
        place -= 1
    _initialise_node(nodes[child, place], node, settings)
    sizes[child, 0] += 1
    _connect(connections, sizes, child, source, node, 1.0, table, counters, blank)
    _connect(connections, sizes, child, node, target, weight, table, counters, blank)


@kernel
def _add_connection(nodes, connections, sizes, child, settings, table, counters, stream, blank, used):
    """Connect two random unconnected nodes; in a feed-forward genome without closing a cycle."""
    inputs = settings.inputs
    count = sizes[child, 0]
    skipped = 0 if settings.recurrent else settings.outputs  # outputs of feed-forward genomes feed nothing
    for _ in range(_TRIES):
        pick = below(stream, inputs + count - skipped)
        source = pick if pick < inputs else nodes[child, pick - inputs + skipped].id
        target = nodes[child, below(stream, count)].id
        if is_connected(connections, child, sizes[child, 1], source, target):
            continue
        if not settings.recurrent and closes_cycle(
            nodes, connections, child, count, sizes[child, 1], source, target, used
        ):
            continue
        weight = settings.weight_mean + settings.weight_stdev * normal(stream)
        weight = min(max(weight, settings.weight_min), settings.weight_max)
        _connect(connections, sizes, child, source, target, weight, table, counters, blank)
        return


@kernel
def _delete_connection(connections, sizes, child, stream):
    if sizes[child, 1] == 0:
        return
    sizes[child, 1] -= 1
    for j in range(below(stream, sizes[child, 1] + 1), sizes[child, 1]):
        connections[child, j] = connections[child, j + 1]


@kernel
def _delete_node(nodes, connections, sizes, child, outputs, stream):
    """Remove a random hidden node and all its connections."""
    hidden = sizes[child, 0] - outputs
    if hidden == 0:
        return
    place = outputs + below(stream, hidden)
    node = nodes[child, place].id
    remaining = 0
    for j in range(sizes[child, 1]):
        if connections[child, j].source != node and connections[child, j].target != node:
            connections[child, remaining] = connections[child, j]
            remaining += 1
    sizes[child, 1] = remaining
    sizes[child, 0] -= 1
    for n in range(place, sizes[child, 0]):
        nodes[child, n] = nodes[child, n + 1]


@kernel
def _mutate_parameters(nodes, connections, sizes, child, settings, activations, aggregations, stream):
    """Change weights, biases, enabled flags, activations and aggregations of a child by the rates of `settings`."""
    s = settings
    for j in range(sizes[child, 1]):
        connections[child, j].weight = _vary(
            connections[child, j].weight,
            s.weight_rate,
            s.weight_replace,
            s.weight_power,
            s.weight_mean,
            s.weight_stdev,
            s.weight_min,
            s.weight_max,
            stream,
        )
        if s.enabled_rate > 0.0 and uniform(stream) < s.enabled_rate:
            connections[child, j].enabled = not connections[child, j].enabled
    for n in range(sizes[child, 0]):
        nodes[child, n].bias = _vary(
            nodes[child, n].bias,
            s.bias_rate,
            s.bias_replace,
            s.bias_power,
            s.bias_mean,
            s.bias_stdev,
            s.bias_min,
            s.bias_max,
            stream,
        )
        if s.activation_rate > 0.0 and uniform(stream) < s.activation_rate:
            nodes[child, n].activation = activations[below(stream, activations.shape[0])]
        if s.aggregation_rate > 0.0 and uniform(stream) < s.aggregation_rate:
            nodes[child, n].aggregation = aggregations[below(stream, aggregations.shape[0])]


@kernel
def mutate(nodes, connections, sizes, child, settings, activations, aggregations, table, counters, stream, blank, used):
    """Mutate structure, then parameters, each with its probability; a row needs space for 1 node and 3 connections."""
    if uniform(stream) < settings.add_node:
        _add_node(nodes, connections, sizes, child, settings, table, counters, stream, blank)
    if uniform(stream) < settings.add_connection:
        _add_connection(nodes, connections, sizes, child, settings, table, counters, stream, blank, used)
    if uniform(stream) < settings.delete_node:
        _delete_node(nodes, connections, sizes, child, settings.outputs, stream)
    if uniform(stream) < settings.delete_connection:
        _delete_connection(connections, sizes, child, stream)
    _mutate_parameters(nodes, connections, sizes, child, settings, activations, aggregations, stream)
