"""Recurrent layers: one workgroup runs all steps of a sequence, or as many as its driver lets it."""

from __future__ import annotations

from dataclasses import dataclass

from volumetric.kernels.gpu.dispatch import Caps, ceil_div, power_of_two
from volumetric.kernels.gpu.graph.launch import (
    Lowered,
    Ref,
    Request,
    launch,
    result,
    scratch,
    source,
    unsupported,
)
from volumetric.kernels.gpu.graph.moving import transpose
from volumetric.layers.recurrent import CELLS

_UNROLL = 4
_SHARE = 16
"""Elements of a dot product that are worth an invocation of their own."""


def recurrent(request: Request) -> Lowered:
    """Forward through all steps."""
    cell, caps = CELLS[request.attrs["cell"]], request.caps
    batch, length, wide = request.inputs[0]
    hidden = request.inputs[1][1]
    cut = cut_of(hidden, wide // hidden, 1, caps)
    buffers = {"from_x": source(0), "weights": scratch(0), "h0": source(2), "y": result(0)}
    buffers |= {"c0": source(3)} if len(cell.states) > 1 else {}
    buffers |= {"bias": source(len(request.inputs) - 1)} if request.attrs["bias"] else {}
    buffers |= {"kept": result(1)} if cell.kept else {}
    turn = transpose(1, wide, hidden, caps, source(1), scratch(0))
    blocks = ceil_div(hidden, cut.units)
    each = (
        blocks * (ceil_div(hidden, cut.parts * _UNROLL) + _UNROLL + cut.parts + 3) + ceil_div(hidden, cut.workgroup) + 1
    )
    part = ceil_div(length, caps.pieces(each, length))
    steps = [
        launch(
            "recurrent",
            batch,
            buffers,
            (batch, length, first, min(first + part, length)),
            constants={
                "HIDDEN": hidden,
                "BIAS": bool(request.attrs["bias"]),
                "SECOND": len(cell.states) > 1,
                "PARTS": cut.parts,
                "UNROLL": _UNROLL,
            },
            preludes=("graph/cells", f"graph/cell/{cell.name}"),
            workgroup=cut.workgroup,
        )
        for first in range(0, length, max(part, 1))
    ]
    return Lowered(launches=(turn, *steps), scratch=(4 * wide * hidden,))


def recurrent_grad(request: Request) -> Lowered:
    """Back-propagation through all steps."""
    cell, caps = CELLS[request.attrs["cell"]], request.caps
    batch, length, hidden = request.inputs[1]
    keeps, second = int(cell.kept > 0), len(cell.states) > 1
    buffers: dict[str, Ref] = {"gy": source(0), "y": source(1), "weights": source(2 + keeps), "h0": source(3 + keeps)}
    buffers |= {"kept": source(2)} if keeps else {}
    buffers |= {"c0": source(4 + keeps)} if second else {}
    buffers["g_x"] = result(0)
    buffers |= {"g_r": result(1)} if cell.apart else {}
    buffers |= {"g_direct": result(1 + cell.apart)} if cell.direct else {}
    cut = cut_of(hidden, 1, 2, caps)
    wide = request.outputs[0][2]
    blocks = ceil_div(hidden, cut.units)
    each = blocks * (ceil_div(wide, 4 * cut.parts) + cut.parts + 7) + ceil_div(hidden, cut.workgroup) + 1
    part = ceil_div(length, caps.pieces(each, length))
    steps = [
        launch(
            "recurrent_grad",
            batch,
            buffers,
            (batch, length, max(last - part, 0), last),
            constants={
                "HIDDEN": hidden,
                "APART": cell.apart,
                "SECOND": second,
                "DIRECT": bool(cell.direct),
                "PARTS": cut.parts,
            },
            preludes=("graph/cells", f"graph/cell/{cell.name}"),
            workgroup=cut.workgroup,
        )
        for last in range(length, 0, -max(part, 1))
    ]
    return Lowered(launches=tuple(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A workgroup of `units` columns and `parts` rows of invocations."""

    units: int
    parts: int

    @property
    def workgroup(self) -> int:
        """Invocations."""
        return self.units * self.parts


def cut_of(hidden: int, blocks: int, states: int, caps: Caps) -> Cut:
    """Columns for the hidden units, and rows that share their dot products as far as these are long enough.

    Raises
    ------
    UnsupportedError : not even the states fit workgroup memory
    """
    room = caps.max_shared - 4 * states * hidden
    units = max(32, min(power_of_two(hidden), caps.max_workgroup))
    parts = 1
    while (
        2 * parts * units <= min(caps.max_workgroup, caps.invocations // 128)
        and hidden >= 2 * parts * _SHARE
        and 8 * parts * blocks * units <= room
    ):
        parts *= 2
    if 4 * parts * blocks * units > room:
        raise unsupported("recurrent", f"a hidden size of {hidden}: its state exceeds workgroup memory")
    return Cut(units=units, parts=parts)
