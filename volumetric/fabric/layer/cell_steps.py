"""Equations, parameters and states of a fabric's cells, for all nodes of a population at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from volumetric.base._typing import Array
from volumetric.fabric.layer.cell_populations import GRU, LSTM, RNN, SLSTM, Axon, Cell, CellPopulation
from volumetric.fabric.layer.messages import by_node, merge_matrices, select_sets, transpose_matrices
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.cell import cell_step
from volumetric.layers.axon import turn_nodes
from volumetric.layers.emit_scope import as_rows
from volumetric.layers.head_norm import EPS as NORM_EPS
from volumetric.layers.layer_spec import ParamSpec
from volumetric.layers.recurrent import Cell as Step

SPREAD = 0.02
"""Deviation of a node's initial weights from those that its population shares."""


def step_of(cell: Cell) -> Step | None:
    """Return the equations of a cell with gates; None: the cell has no gates."""
    if isinstance(cell, RNN):
        return CELLS[f"rnn_{cell.nonlinearity}"]
    if isinstance(cell, SLSTM):
        return CELLS["slstm"]
    return CELLS[cell.__struct_config__.tag] if isinstance(cell, LSTM | GRU) else None  # pyright: ignore[reportArgumentType]  (a name)


def states_of(cell: Cell) -> dict[str, int]:
    """Return the states of a node besides its public output: name → width."""
    if isinstance(cell, Axon):
        return {"c1": cell.pairs, "c2": cell.pairs}
    step = step_of(cell)
    assert step is not None
    # The public output of an LSTM, a GRU or an RNN is its h.
    own = step.states if isinstance(cell, SLSTM) else step.states[1:]
    return dict.fromkeys(own, cell.hidden)


def params_of(cell: Cell, count: int) -> tuple[ParamSpec, ...]:
    """Return the parameters of `count` sets of weights; the first axis is the set."""
    h = cell.hidden

    def spec(name: str, *shape: int, init: str = "fan_in", packable: bool = True, **fields: object) -> ParamSpec:
        return ParamSpec(
            name=name,
            shape=(count, *shape),
            init=init,  # pyright: ignore[reportArgumentType]  (a name of one)
            packable=packable,
            around=SPREAD,
            **fields,  # pyright: ignore[reportArgumentType]  (bounds)
        )

    if isinstance(cell, Axon):
        n, bound = cell.pairs, float(cell.pairs**-0.5)
        return (
            spec("nu", n, init="ring", packable=False),
            spec("theta", n, init="log_uniform", packable=False, bounds=(0.0, 6.28)),
            *(spec(name, n, init="uniform", packable=False, bounds=(-bound, bound)) for name in ("w1", "w2")),
            spec("input.weight", n, h, init="orthogonal"),
            spec("out.weight", h, 2 * n),
            spec("out.bias", h, init="zeros", packable=False),
        )
    step = step_of(cell)
    assert step is not None
    wide = step.blocks * h
    if isinstance(cell, SLSTM):
        width = h // cell.heads
        return (
            spec("ih.weight", wide, h, init="small_normal"),
            spec("r.weight", 4, cell.heads, width, width, init="zeros"),
            spec("bias", 4, h, init="forget_block", packable=False),
            spec("norm.weight", h, init="ones", packable=False),
        )
    return (
        spec("ih.weight", wide, h),
        spec("ih.bias", wide, init="zeros", packable=False),
        spec("hh.weight", wide, h),
        spec("hh.bias", wide, init="zeros", packable=False),
    )


REST = "rest"
"""Name of the states of a cell with gates after its first one, ``[states - 1, n, B, H]``."""

Fixed = dict[str, int]
"""Tensors that are constant over the rows: name → tensor."""


@dataclass(frozen=True, slots=True)
class MessageMap:
    """Map from messages to inputs of cells: ``x = inner m + offset``, with ``[H, heads · e]`` and ``[n, H]``."""

    inner: int
    offset: int


def fixed_weights(
    work: GraphBuilder, of: CellPopulation, p: Mapping[str, int], sets: Array, arriving: MessageMap
) -> Fixed:
    """Emit the weights of a population's nodes, merged so that messages go straight into gates.

    Parameters
    ----------
    p : parameters of the population's sets of weights, by name
    sets : set of weights of each node
    """
    cell = of.cell
    weights = _axon_fixed(work, p) if isinstance(cell, Axon) else _gates_fixed(work, cell, p)
    into = p["input.weight" if isinstance(cell, Axon) else "ih.weight"]
    n, h = work.shape(arriving.offset)
    offset = by_node(
        work, work.reshape(arriving.offset, (n, 1, h)), select_sets(work, transpose_matrices(work, into), sets)
    )
    offset = work.reshape(offset, (n, work.shape(offset)[2]))
    weights["from_x"] = merge_matrices(work, arriving.inner, into)
    per_node = {name: select_sets(work, tensor, sets) for name, tensor in weights.items()}
    bias = per_node.pop("bias", None)
    per_node["offset"] = offset if bias is None else work.binary("add", offset, bias)
    return {name: _flat_sets(work, name, tensor) for name, tensor in per_node.items()}


def _flat_sets(work: GraphBuilder, name: str, tensor: int) -> int:
    """Reshape one vector per node to broadcast against ``[n, B, …]``."""
    if len(work.shape(tensor)) > 2 or name in ("offset", "hidden"):
        return tensor
    sets, width = work.shape(tensor)
    return work.reshape(tensor, (sets, 1, width))


def _gates_fixed(work: GraphBuilder, cell: Cell, p: Mapping[str, int]) -> Fixed:
    if isinstance(cell, SLSTM):
        sets = work.shape(p["bias"])[0]
        whole = _between_heads(work, p["r.weight"])
        bias = work.reshape(p["bias"], (sets, 4 * cell.hidden))
        return {"from_h": transpose_matrices(work, whole), "bias": bias, "norm": p["norm.weight"]}
    from_h = transpose_matrices(work, p["hh.weight"])
    if isinstance(cell, GRU):
        return {"from_h": from_h, "bias": p["ih.bias"], "hidden": p["hh.bias"]}
    return {"from_h": from_h, "bias": work.binary("add", p["ih.bias"], p["hh.bias"])}


def _between_heads(work: GraphBuilder, weight: int) -> int:
    """Emit full matrices ``[sets, 4 H, H]`` with zeros between heads."""
    sets, gates, heads, width, _ = work.shape(weight)
    rows: list[int] = []
    for head in range(heads):
        own = work.part(weight, 2, head, head + 1)
        none = (0, 0, 0, 0)
        rows.append(work.pad(own, (*none, head * width), (*none, (heads - 1 - head) * width)))
    return work.reshape(work.concat(rows, 2), (sets, gates * heads * width, heads * width))


def _axon_fixed(work: GraphBuilder, p: Mapping[str, int]) -> Fixed:
    of = turn_nodes(work, dict(p))
    driven = {name: work.binary("mul", of.gamma, p[name]) for name in ("w1", "w2")}
    return {
        "g": of.g,
        "phi": of.phi,
        **driven,
        "out": transpose_matrices(work, p["out.weight"]),
        "out_bias": p["out.bias"],
    }


def step_cells(
    work: GraphBuilder, of: CellPopulation, fixed: Mapping[str, int], m: int, shown: int, states: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    """Emit one step: the public outputs of nodes, ``[n, B, H]``, and their states.

    Parameters
    ----------
    m : messages, ``[n, B, heads · e]``
    shown, states : previous public outputs, and states in the form of `stack_states`
    """
    cell = of.cell
    if isinstance(cell, Axon):
        return _axon(work, fixed, m, states)
    step = step_of(cell)
    assert step is not None
    h = states["y"] if isinstance(cell, SLSTM) else shown
    from_x = by_node(work, m, fixed["from_x"])
    hidden = _wide(work, fixed["hidden"], work.shape(m)[0]) if isinstance(cell, GRU) else None
    from_h = by_node(work, h, fixed["from_h"], hidden)
    n, batch, wide = work.shape(from_x)
    rows, size = n * batch, wide // step.blocks
    from_x, from_h = (work.reshape(x, (rows, wide)) for x in (from_x, from_h))
    rest = states.get(REST, h if step.direct else None)
    before = None if rest is None else work.reshape(rest, (len(step.direct), rows, size))
    h, others = cell_step(work, step, from_x, from_h, fixed["offset"], before)
    h = work.reshape(h, (n, batch, size))
    after = {} if others is None else {REST: work.reshape(others, (len(step.states) - 1, n, batch, size))}
    if isinstance(cell, SLSTM):
        return _normal(work, cell, h, fixed["norm"]), {"y": h, **after}
    return h, after


def _wide(work: GraphBuilder, bias: int, count: int) -> int:
    return work.broadcast(bias, (count, work.shape(bias)[1]))


def _normal(work: GraphBuilder, cell: SLSTM, y: int, gain: int) -> int:
    n, batch, h = work.shape(y)
    apart = work.reshape(y, (n, batch, cell.heads, h // cell.heads))
    normal = work.norm(as_rows(work, apart), kind="layer", eps=NORM_EPS)
    return work.binary("mul", work.reshape(normal, (n, batch, h)), gain)


def _axon(
    work: GraphBuilder, fixed: Mapping[str, int], m: int, states: Mapping[str, int]
) -> tuple[int, dict[str, int]]:
    mixed, c1, c2 = by_node(work, m, fixed["from_x"], fixed["offset"]), states["c1"], states["c2"]

    def mul(a: int, name: str) -> int:
        return work.binary("mul", a, fixed[name])

    a = work.add(work.binary("sub", mul(c1, "g"), mul(c2, "phi")), mul(mixed, "w1"))
    b = work.add(mul(c2, "g"), mul(c1, "phi"), mul(mixed, "w2"))
    read = work.unary(work.concat((a, b), 2), "silu")
    return work.binary("add", by_node(work, read, fixed["out"]), fixed["out_bias"]), {"c1": a, "c2": b}


def stack_states(work: GraphBuilder, of: CellPopulation, states: Mapping[str, int]) -> dict[str, int]:
    """Emit the states of nodes, ``[n, B, …]`` each, in the form of `step_cells`: all but the first in one tensor."""
    first, rest = _names(of)
    if not rest:
        return dict(states)
    parts = [work.reshape(states[name], (1, *work.shape(states[name]))) for name in rest]
    return {**{name: states[name] for name in first}, REST: work.concat(parts, 0)}


def split_states(work: GraphBuilder, of: CellPopulation, states: Mapping[str, int]) -> dict[str, int]:
    """Emit the inverse of `stack_states`."""
    first, rest = _names(of)
    if not rest:
        return dict(states)
    parts = work.split(states[REST], (1,) * len(rest), 0)
    rest_states = {name: work.reshape(part, work.shape(part)[1:]) for name, part in zip(rest, parts, strict=True)}
    return {**{name: states[name] for name in first}, **rest_states}


def _names(of: CellPopulation) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of separate states and of those that `stack_states` merges, in the order of the cell."""
    names, step = tuple(states_of(of.cell)), step_of(of.cell)
    rest = () if step is None else step.states[1:]
    return tuple(name for name in names if name not in rest), rest


def stored_states(of: CellPopulation) -> tuple[str, ...]:
    """Return the names of the tensors of `stack_states`."""
    first, rest = _names(of)
    return (*first, REST) if rest else first
