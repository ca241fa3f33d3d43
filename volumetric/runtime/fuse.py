"""The one graph of a network in the form of a plan, as the executables of cpu and gpu still read it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from volumetric.errors import UnsupportedError
from volumetric.runtime.graph.families.rowwise import LINEAR
from volumetric.runtime.graph.network import DIALECT, NATIVE, open_graph
from volumetric.runtime.graph.ops import Graph, Node
from volumetric.runtime.graph.segments import on_rows
from volumetric.runtime.plan import Plan, Step, Value

BASE = NATIVE - {"recurrence", "mix", "keep_largest"}
"""Operations that every fast device runs."""
_NAMES = {"linear": "matmul", "sum": "add", "scaled_softmax": "softmax"}


def row_wise(plan: Plan, native: frozenset[str] = BASE) -> bool:
    """Whether a layer-level plan becomes a graph of operations on rows of features, which packed weights serve.

    Parameters
    ----------
    native : operations that the device runs on rows
    """
    graph = open_graph(plan, DIALECT & native)
    return _other(graph, native) is None


def fuse(plan: Plan, native: frozenset[str] = BASE) -> Plan:
    """Return the device-level form of a layer-level plan (as `lower` wrote it).

    Raises
    ------
    UnsupportedError : a layer becomes something else than operations on rows of features
    """
    graph = open_graph(plan, DIALECT & native)
    other = _other(graph, native)
    if other is not None:
        raise UnsupportedError(
            f"{other.op!r} of the layer at {other.where} is no operation on rows",
            hint="compile the plan on a device: it runs as tensor graphs there",
        )
    return _as_plan(plan, graph)


def fuse_if_row_wise(plan: Plan, native: frozenset[str] = BASE) -> Plan | None:
    """Return what `fuse` returns, or None where it would raise."""
    graph = open_graph(plan, DIALECT & native)
    return _as_plan(plan, graph) if _other(graph, native) is None else None


def _other(graph: Graph, native: frozenset[str]) -> Node | None:
    """Find a node that is no operation on rows of a device."""
    return next((node for node in graph.nodes if not on_rows(graph, node, native)), None)


def _as_plan(plan: Plan, graph: Graph) -> Plan:
    kept = [i for i, t in enumerate(graph.tensors) if t.role in ("input", "scratch") and i not in graph.derived]
    number = {old: new for new, old in enumerate(kept)}
    values = [Value(name=t.name, shape=t.shape, dtype=t.dtype) for t in (graph.tensors[i] for i in kept)]
    return Plan(
        values=tuple(values),
        steps=tuple(_step(graph, node, number) for node in graph.nodes),
        inputs=tuple(number[i] for i in graph.inputs if i in number),
        outputs=tuple(number[i] for i in graph.outputs),
        params=plan.params,
        states=plan.states,
        buffers=plan.buffers,
    )


def _step(graph: Graph, node: Node, number: dict[int, int]) -> Step:
    attrs: dict[str, Any] = {name: value for name, value in node.attrs.items() if name not in ("roles", "axis")}
    if node.op == "recurrence":
        attrs = {**LINEAR, **attrs}  # a product and nothing else
    if node.op == "norm":
        attrs["groups"] = 1
    named = zip(node.attrs.get("roles", ()), (graph.tensors[i] for i in node.inputs), strict=False)
    return Step(
        op=_NAMES.get(node.op, node.op),
        where=node.where,
        inputs=tuple(number[i] for i in node.inputs if i in number),
        outputs=(number[node.outputs[0]],),
        params=MappingProxyType(graph.keys(node)),
        attrs=MappingProxyType(attrs),
        states=MappingProxyType({n: t.key for n, t in named if t.role == "state" and t.key is not None}),
        tail=node.tail,
        guard=None if node.guard is None else (number[node.guard[0]], node.guard[1]),
    )
