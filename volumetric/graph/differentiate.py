"""Reverse-mode differentiation: appends backward nodes to a graph under construction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.base.moved_modules import renamed_parameters
from volumetric.graph.build import GraphBuilder
from volumetric.graph.operations import OPS
from volumetric.graph.ops import Node
from volumetric.graph.predicates import Predicate


@renamed_parameters("differentiate", wanted="wrt")
def differentiate(
    work: GraphBuilder,
    seeds: Mapping[int, int],
    wrt: Iterable[int],
    *,
    stops: Collection[int] = (),
    since: int = 0,
) -> dict[int, int]:
    """Emit the gradients of ``Σ seed · tensor`` with respect to the tensors `wrt`.

    Parameters
    ----------
    work : holds the forward nodes; the backward nodes are appended to them
    seeds : tensor → its upstream gradient, a tensor of the same shape
    wrt : float32 tensors, such as inputs and parameters
    stops : tensors at which differentiation stops, as if they were constants
    since : differentiation also stops at the outputs of nodes before this one

    Returns
    -------
    Tensor of `wrt` → its gradient. A tensor on which no seeded tensor depends is missing: its gradient is 0. The
    gradient of a parameter that several nodes read is the sum of their gradients.

    Raises
    ------
    ShapeError
        A seed has another shape than its tensor.
    UnsupportedError
        An operation between seeds and these tensors has no gradient; gradient operations have none.
    """
    for tensor, seed in seeds.items():
        if work.shape(tensor) != work.shape(seed):
            raise ShapeError(f"expected a gradient of shape {list(work.shape(tensor))}, got {list(work.shape(seed))}")
    wrt = tuple(wrt)
    nodes = work.nodes[since:]
    moved = _dependents(nodes, wrt, work.detached.union(stops))
    predicates = {i: node.predicate for node in nodes for i in node.outputs}
    grads = dict(seeds)
    for node in reversed(nodes):
        arrived = [i for i in node.outputs if i in moved and i in grads]
        if not arrived or not moved.intersection(node.inputs):
            continue
        predicate = node.predicate if node.predicate is not None and node.predicate.zeros else None
        with work.at(node.where), _under_predicate(work, predicate):
            handed = _input_gradients(work, node, {i: grads[i] for i in arrived}, moved)
        for i, g in zip(node.inputs, handed, strict=True):
            if g is not None and i in moved:
                with work.at(node.where), _under_predicate(work, predicate if predicates.get(i) == predicate else None):
                    grads[i] = work.add(grads[i], g) if i in grads else g
    return {i: grads[i] for i in wrt if i in grads}


@contextmanager
def _under_predicate(work: GraphBuilder, predicate: Predicate | None) -> Iterator[None]:
    """Let the guard skip the nodes emitted inside; their outputs are then zeros."""
    first = len(work.nodes)
    yield
    if predicate is not None:
        work.nodes[first:] = [replace(node, predicate=predicate) for node in work.nodes[first:]]


def _input_gradients(
    work: GraphBuilder, node: Node, arrived: Mapping[int, int], moved: Collection[int]
) -> Sequence[int | None]:
    """Emit the gradients of a node's inputs from the gradients of its outputs."""
    op = OPS[node.op]
    if op.vjp_of_all is not None:
        return op.vjp_of_all(work, node, [arrived.get(i) for i in node.outputs], [i in moved for i in node.inputs])
    if op.vjp is None:
        raise UnsupportedError(f"{node.op} {node.where} has no gradient", hint="differentiate what comes before it")
    if list(arrived) != [node.outputs[0]]:  # of statistics and the like, which only gradients read
        raise UnsupportedError(f"only the first output of {node.op} {node.where} has a gradient")
    return op.vjp(work, node, arrived[node.outputs[0]])


def _dependents(nodes: list[Node], wrt: tuple[int, ...], stops: Collection[int]) -> set[int]:
    """Return `wrt` and all tensors that depend on them on a path without `stops`."""
    moved = set(wrt)
    for node in nodes:
        if moved.intersection(node.inputs):
            moved.update(i for i in node.outputs if i not in stops)
    return moved
