"""Neuroevolution genomes on the CPU: links, the firing of nodes, compatibility distance, speciation.

A population is padded: ``nodes[genome, i]`` and ``connections[genome, j]`` are records sorted by id and by innovation,
``sizes[genome] = (nodes, connections)`` are the used counts. Nodes with ids below the number of inputs have no record;
the first records are the outputs. A *slot* holds a node's values: inputs first, then the records.
"""

from __future__ import annotations

import math

from volumetric.devices.cpu.kernels.jit import kernel


@kernel
def node_index(nodes, genome, count, node):
    """Return the index of the record of `node`, by bisection; `count` if there is none."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if nodes[genome, middle].id < node:
            low = middle + 1
        else:
            high = middle
    if low < count and nodes[genome, low].id == node:
        return low
    return count


@kernel
def squash(code, x):
    """Return activation `code` of x; the order is that of ``evolution.genes.ACTIVATIONS``."""
    if code == 0:
        return 1.0 / (1.0 + math.exp(-4.9 * x))
    if code == 1:
        return 1.0 / (1.0 + math.exp(-x))
    if code == 2:
        return math.tanh(x)
    if code == 3:
        return max(x, 0.0)
    if code == 4:
        return x
    if code == 5:
        return x if x > 0.0 else 0.01 * x
    if code == 6:
        return x / (1.0 + math.exp(-x))
    if code == 7:
        return 0.5 * x * (1.0 + math.erf(x * math.sqrt(0.5)))
    if code == 8:
        return math.sin(x)
    if code == 9:
        return math.exp(-x * x)
    if code == 10:
        return abs(x)
    if code == 11:
        return x * x
    return min(max(x, -1.0), 1.0)


@kernel
def _link(nodes, connections, genome, node_count, connection_count, inputs, starts, sources, weights):
    """Sort the enabled connections by target: connections into record n are ``starts[n] : starts[n + 1]``."""
    starts[: node_count + 1] = 0
    for j in range(connection_count):
        if connections[genome, j].enabled:
            starts[node_index(nodes, genome, node_count, connections[genome, j].target) + 1] += 1
    for n in range(node_count):
        starts[n + 1] += starts[n]
    total = starts[node_count]
    for j in range(connection_count - 1, -1, -1):
        if connections[genome, j].enabled:
            target = node_index(nodes, genome, node_count, connections[genome, j].target)
            source = connections[genome, j].source
            # Counts down from the end of the target's range, which leaves starts[target + 1] at its beginning.
            starts[target + 1] -= 1
            k = starts[target + 1]
            sources[k] = source if source < inputs else inputs + node_index(nodes, genome, node_count, source)
            weights[k] = connections[genome, j].weight
    for n in range(node_count):
        starts[n] = starts[n + 1]
    starts[node_count] = total


@kernel
def _order(starts, sources, inputs, outputs, order, stack, cursor, mark, node_count):
    """Write the records that the outputs depend on, each after its sources (depth first); return their number."""
    for n in range(node_count):
        cursor[n] = starts[n]
        mark[n] = 0
    count = 0
    for output in range(outputs):
        if mark[output]:
            continue
        mark[output] = 1
        stack[0] = output
        depth = 1
        while depth > 0:
            node = stack[depth - 1]
            if cursor[node] < starts[node + 1]:
                source = sources[cursor[node]] - inputs
                cursor[node] += 1
                if source >= 0 and not mark[source]:
                    mark[source] = 1
                    stack[depth] = source
                    depth += 1
            else:
                order[count] = node
                count += 1
                depth -= 1
    return count


@kernel
def _fire(values, out, slot, gene, first, last, sources, weights):
    """Compute one node for all samples: aggregate ``weight · value`` over its sources, add the bias, squash."""
    samples = values.shape[1]
    for b in range(samples):
        out[slot, b] = 0.0
    for k in range(first, last):
        source = sources[k]
        weight = weights[k]
        if k == first or gene.aggregation == 0 or gene.aggregation == 1:
            for b in range(samples):
                out[slot, b] += weight * values[source, b]
        elif gene.aggregation == 2:
            for b in range(samples):
                out[slot, b] *= weight * values[source, b]
        elif gene.aggregation == 3:
            for b in range(samples):
                out[slot, b] = max(out[slot, b], weight * values[source, b])
        else:
            for b in range(samples):
                out[slot, b] = min(out[slot, b], weight * values[source, b])
    scale = 1.0 / (last - first) if gene.aggregation == 1 and last > first else 1.0
    for b in range(samples):
        out[slot, b] = squash(gene.activation, out[slot, b] * scale + gene.bias)


@kernel
def distance(nodes_a, connections_a, sizes_a, a, nodes_b, connections_b, sizes_b, b, coefficients):
    """Return the compatibility distance of genome `a` of one population and `b` of another.

    δ = c₁·E/N + c₂·D/N + c₃·W̄ with coefficients (c₁, c₂, c₃, small): E excess and D disjoint connection genes, N the
    larger number of connection genes, or 1 if that is below `small`; W̄ the mean difference over matching genes, where a
    bias counts as a weight and another activation or aggregation as a difference of 1.
    """
    count_a, count_b = sizes_a[a, 1], sizes_b[b, 1]
    i = j = disjoint = matching = 0
    difference = 0.0
    while i < count_a and j < count_b:
        mark_a, mark_b = connections_a[a, i].innovation, connections_b[b, j].innovation
        if mark_a == mark_b:
            difference += abs(connections_a[a, i].weight - connections_b[b, j].weight)
            matching += 1
        else:
            disjoint += 1
        i += mark_a <= mark_b
        j += mark_b <= mark_a
    excess = count_a - i + count_b - j
    i = j = 0
    while i < sizes_a[a, 0] and j < sizes_b[b, 0]:
        id_a, id_b = nodes_a[a, i].id, nodes_b[b, j].id
        if id_a == id_b:
            difference += abs(nodes_a[a, i].bias - nodes_b[b, j].bias)
            difference += nodes_a[a, i].activation != nodes_b[b, j].activation
            difference += nodes_a[a, i].aggregation != nodes_b[b, j].aggregation
            matching += 1
        i += id_a <= id_b
        j += id_b <= id_a
    size = max(count_a, count_b)
    scale = 1.0 / size if size >= coefficients[3] and size > 0 else 1.0
    mean = difference / matching if matching > 0 else 0.0
    return (coefficients[0] * excess + coefficients[1] * disjoint) * scale + coefficients[2] * mean


@kernel
def speciate(
    nodes, connections, sizes, old_nodes, old_connections, old_sizes, coefficients, threshold, member, founders
):
    """Assign every genome to the first species whose representative is closer than `threshold`, or to a new one.

    Parameters
    ----------
    old_nodes, old_connections, old_sizes : representatives of the existing species
    member : int64 [genomes]; receives the species of each genome, new species after the old ones
    founders : int64 [genomes]; receives the genome that founded each new species, which represents it

    Returns the number of new species.
    """
    species = old_sizes.shape[0]
    founded = 0
    for g in range(sizes.shape[0]):
        chosen = -1
        for s in range(species):
            d = distance(nodes, connections, sizes, g, old_nodes, old_connections, old_sizes, s, coefficients)
            if d < threshold:
                chosen = s
                break
        if chosen < 0:
            for f in range(founded):
                d = distance(nodes, connections, sizes, g, nodes, connections, sizes, founders[f], coefficients)
                if d < threshold:
                    chosen = species + f
                    break
        if chosen < 0:
            founders[founded] = g
            chosen = species + founded
            founded += 1
        member[g] = chosen
    return founded


@kernel
def distances(nodes, connections, sizes, coefficients, out):
    """All pairs: ``out[i, j]`` is the distance of genomes i and j."""
    for i in range(sizes.shape[0]):
        for j in range(i, sizes.shape[0]):
            out[i, j] = distance(nodes, connections, sizes, i, nodes, connections, sizes, j, coefficients)
            out[j, i] = out[i, j]


@kernel
def closes_cycle(nodes, connections, genome, node_count, connection_count, source, target, mark):
    """Whether a connection source → target would close a cycle: whether `source` is reached from `target`."""
    if source == target:
        return True
    goal = node_index(nodes, genome, node_count, source)
    if goal == node_count:
        return False
    mark[:node_count] = 0
    mark[node_index(nodes, genome, node_count, target)] = 1
    changed = True
    while changed:
        changed = False
        for j in range(connection_count):
            start = node_index(nodes, genome, node_count, connections[genome, j].source)
            if start < node_count and mark[start]:
                end = node_index(nodes, genome, node_count, connections[genome, j].target)
                if not mark[end]:
                    if end == goal:
                        return True
                    mark[end] = 1
                    changed = True
    return False


@kernel
def insert_connection(connections, sizes, child, gene):
    """Insert a record, keeping the order by innovation; return its index."""
    place = sizes[child, 1]
    while place > 0 and connections[child, place - 1].innovation > gene.innovation:
        connections[child, place] = connections[child, place - 1]
        place -= 1
    connections[child, place] = gene
    sizes[child, 1] += 1
    return place


@kernel
def is_connected(connections, genome, count, source, target):
    """Whether there is a connection, enabled or not, from `source` to `target`."""
    for j in range(count):
        if connections[genome, j].source == source and connections[genome, j].target == target:
            return True
    return False
