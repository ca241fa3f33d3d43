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
    return all(on_rows(graph, node, native) for node in graph.nodes)


def fuse(plan: Plan, native: frozenset[str] = BASE) -> Plan:
    """Return the device-level form of a layer-level plan (as `lower` wrote it)."""
    graph = open_graph(plan, DIALECT & native)
    for node in graph.nodes:
        if not on_rows(graph, node, native):
            raise UnsupportedError(
                f"{node.op!r} of the layer at {node.where} is no operation on rows",
                hint="compile the plan on a device: it runs as tensor graphs there",
            )
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
    return Step(
        op=_NAMES.get(node.op, node.op),
        where=node.where,
        inputs=tuple(number[i] for i in node.inputs if i in number),
        outputs=(number[node.outputs[0]],),
        params=MappingProxyType(graph.keys(node)),
        attrs=MappingProxyType(attrs),
        states=MappingProxyType({n: f"{node.where}/{n}" for n in ("k", "v", "h", "c") if node.named(n) is not None}),
        tail=node.tail,
        guard=None if node.guard is None else (number[node.guard[0]], node.guard[1]),
    )
