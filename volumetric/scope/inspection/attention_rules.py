"""How attention computes one number: the values of other rows or nodes, times how much is paid to each."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations import OPS
from volumetric.graph.ops import Node
from volumetric.scope.inspection.number_step import NumberStep, Operand, Term, read, sum_step
from volumetric.scope.inspection.row_graph import RowGraph


def attend_rule(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    """Explain an output of ``attend``: ``Σ_s p[s] v[s]`` over positions s."""
    attrs, size = node.attrs, node.attrs["head_dim"]
    roles = dict(zip(attrs["roles"], node.inputs, strict=True))
    heads, kv = attrs["heads"], attrs["kv_heads"]
    if k:
        text = "a row of keys or values that attention stores" if k else ""
        return NumberStep(formula=text, value=float(graph.values[node.outputs[k]].flat[flat]))
    row, column = divmod(flat, heads * size)
    head, d = divmod(column, size)
    source = head // (heads // kv)
    shares = _shares(graph, node, row, head)
    qkv = graph.values[roles["qkv"]]
    first = len(shares) - len(qkv)  # rows of the state come first
    terms: list[Term] = []
    for s in np.flatnonzero(shares).tolist():
        share = Operand(name=f"p[{s}]", value=float(shares[s]))
        if s < first:
            value = read(graph, roles["v"], (s * kv + source) * size + d, "v")
        else:
            value = read(graph, roles["qkv"], (s - first) * qkv.shape[1] + (heads + kv + source) * size + d, "v")
        terms.append(Term((share, value)))
    note = f"head {head}: p[s] is the softmax over positions s of q · k[s] · {attrs['scale']:.6g}"
    return sum_step(terms, "Σ p[s] · v[s]", note)


def _shares(graph: RowGraph, node: Node, row: int, head: int) -> Array:
    """Return what a row pays to each position in a head: the outputs for values that mark the positions."""
    attrs, size = node.attrs, node.attrs["head_dim"]
    names = attrs["roles"]
    arrays = {name: graph.values[i] for name, i in zip(names, node.inputs, strict=True)}
    rows, first = len(arrays["qkv"]), 0
    if "v" in arrays:
        first = int(arrays["positions"][0]) if rows else 0
    count, shares = first + rows, np.zeros(first + rows)
    start = (attrs["heads"] + attrs["kv_heads"]) * size
    for at in range(0, count, size):
        marks = np.zeros((count, size))
        here = np.arange(at, min(at + size, count))
        marks[here, here - at] = 1
        qkv = arrays["qkv"].copy()
        qkv[:, start:] = np.tile(marks[first:], attrs["kv_heads"])
        marked = {**arrays, "qkv": qkv}
        if "v" in arrays:
            marked["v"] = np.repeat(marks[:first, None], attrs["kv_heads"], 1)
            marked["k"] = arrays["k"][:first]
        y = OPS["attend"].run([marked[name] for name in names], attrs)[0]
        shares[here] = y[row, head * size : head * size + len(here)]
    return shares


def edge_attend_rule(graph: RowGraph, node: Node, k: int, flat: int) -> NumberStep:
    """Explain an output of ``edge_attend``: ``Σ α v`` over the edges of a receiver."""
    _, kv, _, starts, senders, *_ = node.inputs
    if k:
        note = "the softmax over a receiver's edges of q · k / √d + bias"
        return NumberStep(formula="α", value=float(graph.values[node.outputs[k]].flat[flat]), note=note)
    heads = node.attrs["heads"]
    receiver, batch, column = (int(i) for i in np.unravel_index(flat, graph.values[node.outputs[0]].shape))
    wide = graph.values[node.outputs[0]].shape[2] // heads
    head, e = divmod(column, wide)
    begin, end = graph.values[starts][receiver : receiver + 2].tolist()
    _, batches, every = graph.values[kv].shape
    keys = every - heads * wide
    terms: list[Term] = []
    for edge in range(begin, end):
        sender = int(graph.values[senders][edge])
        place = (edge * batches + batch) * heads + head
        share = read(graph, node.outputs[1], place, "α")
        value = read(graph, kv, (sender * batches + batch) * every + keys + head * wide + e, "v")
        terms.append(Term((Operand(name=f"α[{sender}]", value=share.value), value)))
    note = f"head {head}, {len(terms)} edges: α is the softmax over the edges of q · k / √d + bias"
    return sum_step(terms, "Σ α · v", note)
