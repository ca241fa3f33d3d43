"""Cells of a population as nodes of a graph: products for all gates of all of them, and what follows from these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from volumetric._typing import Array
from volumetric.layers.fabric.cells import states_of
from volumetric.layers.fabric.declared import GRU, LSTM, RNN, SLSTM, Axon, Cell, Population
from volumetric.layers.head_norm import EPS as NORM_EPS
from volumetric.layers.slstm_cell import EPS
from volumetric.runtime.graph.build import GraphBuilder
from volumetric.runtime.graph.rules.axon import turn_of
from volumetric.runtime.graph.rules.base import flat
from volumetric.runtime.graph.rules.fabric_products import by_block, by_node, chosen, joined, of_blocks, turned

Fixed = dict[str, int]
"""What does not change from row to row: name → tensor."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """How messages come to cells: ``x = inner m + offset``, with ``[H, heads · e]`` and ``[n, H]``."""

    inner: int
    offset: int


def fixed_of(work: GraphBuilder, of: Population, p: Mapping[str, int], sets: Array, arriving: Arriving) -> Fixed:
    """Emit the weights of a population's nodes, so that messages go straight into gates.

    Parameters
    ----------
    p : parameters of its sets of weights, by name
    sets : which set each node has
    """
    cell = of.cell
    made = _axon_fixed(work, p) if isinstance(cell, Axon) else _gates_fixed(work, cell, p)
    into = p["input.weight" if isinstance(cell, Axon) else "ih.weight"]
    n, h = work.shape(arriving.offset)
    offset = by_node(work, work.reshape(arriving.offset, (n, 1, h)), chosen(work, turned(work, into), sets))
    offset = work.reshape(offset, (n, work.shape(offset)[2]))
    made["from_x"] = joined(work, arriving.inner, into)
    found = {name: chosen(work, tensor, sets) for name, tensor in made.items()}
    bias = found.pop("bias", None)
    found["offset"] = offset if bias is None else work.binary("add", offset, bias)
    if not isinstance(cell, Axon | GRU):  # one product for both
        found["both"] = work.concat((found.pop("from_x"), found.pop("from_h")), 1)
    if isinstance(cell, SLSTM | LSTM):
        found["both"] = by_block(work, found["both"], 4)
        found["offset"] = by_block(work, found["offset"], 4)
    return {name: _flat_sets(work, name, tensor) for name, tensor in found.items()}


def _flat_sets(work: GraphBuilder, name: str, tensor: int) -> int:
    """View what is a vector for each node so that it goes with ``[n, B, …]``."""
    if len(work.shape(tensor)) > 2 or name in ("offset", "hidden"):
        return tensor
    sets, width = work.shape(tensor)
    return work.reshape(tensor, (sets, 1, width))


def _gates_fixed(work: GraphBuilder, cell: Cell, p: Mapping[str, int]) -> Fixed:
    if isinstance(cell, SLSTM):
        sets = work.shape(p["bias"])[0]
        whole = _between_heads(work, p["r.weight"])
        bias = work.reshape(p["bias"], (sets, 4 * cell.hidden))
        return {"from_h": turned(work, whole), "bias": bias, "norm": p["norm.weight"]}
    from_h = turned(work, p["hh.weight"])
    if isinstance(cell, GRU):
        return {"from_h": from_h, "bias": p["ih.bias"], "hidden": p["hh.bias"]}
    return {"from_h": from_h, "bias": work.binary("add", p["ih.bias"], p["hh.bias"])}


def _between_heads(work: GraphBuilder, weight: int) -> int:
    """Emit whole matrices ``[sets, 4 H, H]``, which have 0 between heads."""
    sets, gates, heads, width, _ = work.shape(weight)
    rows: list[int] = []
    for head in range(heads):
        own = work.part(weight, 2, head, head + 1)
        none = (0, 0, 0, 0)
        rows.append(work.pad(own, (*none, head * width), (*none, (heads - 1 - head) * width)))
    return work.reshape(work.concat(rows, 2), (sets, gates * heads * width, heads * width))


def _axon_fixed(work: GraphBuilder, p: Mapping[str, int]) -> Fixed:
    of = turn_of(work, dict(p))
    driven = {name: work.binary("mul", of.gamma, p[name]) for name in ("w1", "w2")}
    return {"g": of.g, "phi": of.phi, **driven, "out": turned(work, p["out.weight"]), "out_bias": p["out.bias"]}


def advance(
    work: GraphBuilder, of: Population, fixed: Mapping[str, int], m: int, shown: int, kept: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """Emit one step: what nodes show, ``[n, B, H]``, and what they keep.

    Parameters
    ----------
    m : messages, ``[n, B, heads · e]``
    shown, kept : what they showed and kept before
    """
    cell = of.cell
    if isinstance(cell, Axon):
        return _axon(work, fixed, m, kept)
    if isinstance(cell, GRU):
        from_x = by_node(work, m, fixed["from_x"], fixed["offset"])
        from_h = by_node(work, shown, fixed["from_h"], _wide(work, fixed["hidden"], work.shape(m)[0]))
        return _gru(work, from_x, from_h, shown), {}
    before = kept["y"] if isinstance(cell, SLSTM) else shown
    read = work.concat((m, before), 2)
    if isinstance(cell, RNN):
        return work.unary(by_node(work, read, fixed["both"], fixed["offset"]), cell.nonlinearity), {}
    gates = of_blocks(work, read, fixed["both"], fixed["offset"], 4)
    if isinstance(cell, LSTM):
        return _lstm(work, gates, kept["c"])
    after = _slstm(work, gates, kept)
    return _normal(work, cell, after["y"], fixed["norm"]), after


def _wide(work: GraphBuilder, bias: int, count: int) -> int:
    return work.broadcast(bias, (count, work.shape(bias)[1]))


def _slstm(work: GraphBuilder, gates: list[int], kept: Mapping[str, int]) -> dict[str, int]:
    """The states of `layers.slstm`."""
    c, n, m = kept["c"], kept["n"], kept["m"]
    i, f, z, o = gates
    passed = work.binary("sub", m, work.unary(work.unary(f, "neg"), "softplus"))
    begun = work.binary("greater", work.unary(n, "abs"), work.scalar(0.0))
    most = work.binary("max", i, work.binary("mask", passed, begun))
    i = work.unary(work.binary("sub", i, most), "exp")
    f = work.unary(work.binary("min", work.binary("sub", passed, most), work.scalar(0.0)), "exp")
    c = work.add(work.binary("mul", f, c), work.binary("mul", i, work.unary(z, "tanh")))
    n = work.add(work.binary("mul", f, n), i)
    y = work.binary("div", work.binary("mul", work.unary(o, "sigmoid"), c), work.affine(n, 1.0, EPS))
    return {"y": y, "c": c, "n": n, "m": most}


def _normal(work: GraphBuilder, cell: SLSTM, y: int, gain: int) -> int:
    n, batch, h = work.shape(y)
    apart = work.reshape(y, (n, batch, cell.heads, h // cell.heads))
    normal = work.norm(flat(work, apart), kind="layer", eps=NORM_EPS)
    return work.binary("mul", work.reshape(normal, (n, batch, h)), gain)


def _lstm(work: GraphBuilder, gates: list[int], c: int) -> tuple[int, dict[str, int]]:
    names = ("sigmoid", "sigmoid", "tanh", "sigmoid")
    i, f, g, o = (work.unary(x, name) for x, name in zip(gates, names, strict=True))
    c = work.add(work.binary("mul", f, c), work.binary("mul", i, g))
    return work.binary("mul", o, work.unary(c, "tanh")), {"c": c}


def _gru(work: GraphBuilder, from_x: int, from_h: int, h: int) -> int:
    width = work.shape(h)[2]
    (xr, xz, xn), (hr, hz, hn) = (work.split(x, (width,) * 3, 2) for x in (from_x, from_h))
    r, z = (work.unary(work.add(a, b), "sigmoid") for a, b in ((xr, hr), (xz, hz)))
    n = work.unary(work.add(xn, work.binary("mul", r, hn)), "tanh")
    return work.add(work.binary("mul", work.affine(z, -1.0, 1.0), n), work.binary("mul", z, h))


def _axon(work: GraphBuilder, fixed: Mapping[str, int], m: int, kept: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    mixed, c1, c2 = by_node(work, m, fixed["from_x"], fixed["offset"]), kept["c1"], kept["c2"]

    def mul(a: int, name: str) -> int:
        return work.binary("mul", a, fixed[name])

    a = work.add(work.binary("sub", mul(c1, "g"), mul(c2, "phi")), mul(mixed, "w1"))
    b = work.add(mul(c2, "g"), mul(c1, "phi"), mul(mixed, "w2"))
    read = work.unary(work.concat((a, b), 2), "silu")
    return work.binary("add", by_node(work, read, fixed["out"]), fixed["out_bias"]), {"c1": a, "c2": b}


def widths(of: Population) -> dict[str, int]:
    """What nodes keep, by name: its width."""
    return states_of(of.cell)
