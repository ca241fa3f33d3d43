"""Constant folding over frozen weights: moves nodes that depend only on fixed weights into a graph that runs once."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from volumetric.base._typing import Array
from volumetric.graph.graph_device import GraphDevice, TensorStore
from volumetric.graph.operations import OPS
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune

PREFIX: Final = "frozen/"
_MOVES: Final = frozenset({"concat", "permute", "reshape", "slice"})
_SMALL: Final = 4096
"""A result of at most this many elements is stored even if it is larger than its inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantSplit:
    """A graph in two parts.

    Attributes
    ----------
    first : the part to run once, or None if nothing depends on fixed buffers alone
    keys : buffer of each output of `first`: `PREFIX` and a digest of its computation, so that equal results of several
        graphs share a buffer
    rest : reads these buffers and computes everything else
    """

    first: Graph | None
    keys: tuple[str, ...]
    rest: Graph


def split_constants(graph: Graph, fixed: Collection[str]) -> ConstantSplit:
    """Split off the nodes that depend only on constants and on the buffers `fixed`, which never change.

    `graph` has fixed shapes. Results much larger than their inputs stay in `rest`, as do views, which cost nothing.
    """
    fixed = frozenset(fixed)
    written = {graph.tensors[i].key for node in graph.nodes for i in node.outputs}
    names = {i: _digest("constant", str(v.dtype), v.shape, v.tobytes()) for i, v in graph.constants.items()}
    for i, tensor in enumerate(graph.tensors):
        if tensor.key in fixed and tensor.key not in written:
            names[i] = _digest("buffer", tensor.key, tensor.shape)
    alone, computed = list[Node](), set[int]()
    for node in graph.nodes:
        if not (node.outputs and names.keys() >= set(node.inputs) and _is_foldable(graph, node)):
            continue
        alone.append(
            node if node.predicate is None else replace(node, predicate=None)
        )  # it runs once, without predicates
        of = [names[i] for i in node.inputs], sorted(node.attrs.items())
        names.update((i, _digest(node.op, at, *of)) for at, i in enumerate(node.outputs))
        if node.op != "reshape":
            computed.update(node.outputs)
    stays = [node for node in graph.nodes if not computed.issuperset(node.outputs) or not node.outputs]
    frozen = computed.intersection(i for node in stays for i in node.inputs).difference(graph.outputs)
    tensors = list(graph.tensors)
    for i in frozen:
        tensors[i] = replace(tensors[i], key=PREFIX + names[i], role="parameter")
    nodes = tuple(node for node in graph.nodes if frozen.isdisjoint(node.outputs))
    rest = prune(replace(graph, tensors=tuple(tensors), nodes=nodes))
    keyed = rest.tensors_by_key
    of_key = {PREFIX + names[i]: i for i in frozen if PREFIX + names[i] in keyed}
    if not of_key:
        return ConstantSplit(first=None, keys=(), rest=graph)
    first = prune(replace(graph, nodes=tuple(alone), inputs=(), outputs=tuple(of_key.values())))
    return ConstantSplit(first=first, keys=tuple(of_key), rest=rest)


def constant_values(split: ConstantSplit, graphs: GraphDevice, store: TensorStore) -> list[Array]:
    """Run `ConstantSplit.first` once and return its outputs in the order of the keys.

    Nodes that only move elements of buffers in host memory run in NumPy: compiling a step takes longer than running it
    once, and large programs concatenate tens of thousands of weights.
    """
    if split.first is None:
        return []
    graph, values = split.first, dict[int, Array]()
    inside = {i: store.host_view(t.key) for i, t in enumerate(graph.tensors) if t.key is not None}
    values |= {i: value for i, value in inside.items() if value is not None}
    for node in graph.nodes:
        if node.op in _MOVES and all(i in values for i in node.inputs):
            values.update(
                zip(node.outputs, OPS[node.op].run([values[i] for i in node.inputs], node.attrs), strict=True)
            )
    left = [i for i in graph.outputs if i not in values]
    if left:
        computed = graphs.compile(prune(replace(graph, outputs=tuple(left))), store).run([])
        values.update(zip(left, computed, strict=True))
    return [values[i] for i in graph.outputs]


def _is_foldable(graph: Graph, node: Node) -> bool:
    """Return whether a node writes no buffer, has plain attributes, and makes no large result of small inputs."""
    tensors = graph.tensors
    if any(tensors[i].key is not None or tensors[i].dtype != "float32" for i in node.outputs):
        return False
    output_size, of = (sum(prod(tensors[i].shape) for i in some) for some in (node.outputs, node.inputs))
    return all(map(_is_plain_attr, node.attrs.values())) and output_size <= max(_SMALL, of)


def _is_plain_attr(value: Any) -> bool:
    return all(map(_is_plain_attr, value)) if isinstance(value, tuple) else isinstance(value, str | int | float | None)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
