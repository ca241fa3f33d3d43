"""Steps of an optimiser, and their trials, for several arrays in one launch.

``update_many`` and ``update_squares`` take parameter, gradient and slots of each array, ``buffers`` of them, and then
the scalars that all share: [5], or the first four and the last one, which then need not be put together. The first is
``update`` of each in place; only this rewrite creates it. The second is the sum of all squares of what would be
written, which takes the place of the largest of the sums: both are finite if every value is, short of values whose
squares leave the range of numbers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any

from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune
from volumetric.graph.rewriter import GraphRewriter


def join_updates(graph: Graph) -> Graph:
    """Join updates that follow each other, with the same rule and the same scalars."""
    return _divide_scalars(_join_steps(_join_trials(graph)))


def _divide_scalars(graph: Graph) -> Graph:
    """Let joined nodes read the parts of their scalars, if these are four numbers of one tensor and one of another."""
    parts = {
        node.outputs[0]: node.inputs
        for node in graph.nodes
        if node.op == "concat" and [graph.tensors[i].shape for i in node.inputs] == [(4,), (1,)]
    }
    nodes = tuple(
        replace(node, inputs=(*node.inputs[:-1], *parts[node.inputs[-1]]))
        if "buffers" in node.attrs and node.op in ("update_many", "update_squares") and node.inputs[-1] in parts
        else node
        for node in graph.nodes
    )
    return prune(replace(graph, nodes=nodes)) if nodes != graph.nodes else graph


def _join_steps(graph: Graph) -> Graph:
    work = GraphRewriter(graph)
    for key, run in groupby(graph.nodes, lambda node: _rule(node) if _in_place(graph, node) else None):
        nodes = list(run)
        if key is None or len(nodes) == 1:
            work.nodes += nodes
            continue
        work.where = nodes[0].where
        outputs = tuple(i for node in nodes for i in node.outputs)
        work.emit_to(outputs, "update_many", _inputs(nodes), **nodes[0].attrs, buffers=len(nodes[0].inputs) - 1)
    return replace(graph, nodes=tuple(work.nodes))


def _join_trials(graph: Graph) -> Graph:
    """Join the trials whose sums are read only to find the largest one."""
    makers = {node.outputs[0]: node for node in graph.nodes if node.op == "update_squares"}
    root = view_roots(graph)
    reads = Counter(root[i] for node in graph.nodes if node.op != "reshape" for i in node.inputs)
    reads.update(root[i] for i in graph.outputs)
    largest = {
        node.inputs[0]: node
        for node in graph.nodes
        if node.op == "reduce" and node.attrs["name"] == "max" and graph.tensors[node.outputs[0]].shape == (1,)
    }
    for node in graph.nodes:
        reader = largest.get(node.outputs[0]) if node.op == "concat" else None
        if reader is None or reads[node.outputs[0]] != 1 or not all(i in makers and reads[i] == 1 for i in node.inputs):
            continue
        trials = [makers[i] for i in node.inputs]
        if len({_rule(trial) for trial in trials}) == 1:
            return _with_one_trial(graph, trials, reader)
    return graph


def _with_one_trial(graph: Graph, trials: list[Node], largest: Node) -> Graph:
    work, outputs = GraphRewriter(graph), {trial.outputs for trial in trials}
    for node in graph.nodes:
        if node is trials[-1]:
            work.where = node.where
            buffers = len(node.inputs) - 1
            work.emit_to(largest.outputs, "update_squares", _inputs(trials), **node.attrs, buffers=buffers)
        elif node is not largest and node.outputs not in outputs:
            work.nodes.append(node)
    return prune(replace(graph, tensors=tuple(work.tensors), nodes=tuple(work.nodes)))


def _inputs(nodes: list[Node]) -> list[int]:
    """Inputs of each node, then the scalars."""
    return [*(i for node in nodes for i in node.inputs[:-1]), nodes[0].inputs[-1]]


def _rule(node: Node) -> tuple[Any, ...]:
    """What nodes of a launch share: attributes and scalars."""
    return node.inputs[-1], len(node.inputs), tuple(sorted((name, repr(value)) for name, value in node.attrs.items()))


def _in_place(graph: Graph, node: Node) -> bool:
    """Whether a node updates the arrays that it reads."""
    if node.op != "update" or not node.attrs["in_place"] or node.predicate is not None:
        return False
    keys = [graph.tensors[i].key for i in (node.inputs[0], *node.inputs[2:-1])]
    return None not in keys and keys == [graph.tensors[i].key for i in node.outputs]
