"""What the cells of a fabric compute, all nodes of a population at once; and their parameters and states."""

from __future__ import annotations

from volumetric.graph.numeric import slstm_cell
from volumetric.graph.numeric.cells import CELLS
from volumetric.layers.base import ParamSpec
from volumetric.layers.fabric.declared import GRU, LSTM, RNN, SLSTM, Axon, Cell
from volumetric.layers.recurrent import Cell as Step

SPREAD = 0.02
"""Deviation of fresh weights of a node from those that all of its population begin with."""


def step_of(cell: Cell) -> Step | None:
    """Return the equations of a cell with gates; None: it has none."""
    if isinstance(cell, RNN):
        return CELLS[f"rnn_{cell.nonlinearity}"]
    if isinstance(cell, SLSTM):
        return slstm_cell.CELL
    return CELLS[cell.__struct_config__.tag] if isinstance(cell, LSTM | GRU) else None  # pyright: ignore[reportArgumentType]  (a name)


def states_of(cell: Cell) -> dict[str, int]:
    """What a node keeps besides what it shows: name → width."""
    if isinstance(cell, Axon):
        return {"c1": cell.pairs, "c2": cell.pairs}
    step = step_of(cell)
    assert step is not None
    # What an LSTM, a GRU or an RNN shows is its h.
    own = step.states if isinstance(cell, SLSTM) else step.states[1:]
    return dict.fromkeys(own, cell.hidden)


def params_of(cell: Cell, count: int) -> tuple[ParamSpec, ...]:
    """Parameters of `count` sets of weights; the first axis has the sets."""
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
