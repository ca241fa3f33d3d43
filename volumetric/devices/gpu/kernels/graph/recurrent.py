"""Recurrent layers: one workgroup runs all steps of a head of a sequence, or as many as the driver allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.kernels.dispatch import Caps, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    launch,
    result,
    scratch,
    source,
    unsupported,
)
from volumetric.devices.gpu.kernels.graph.strided_copies import copy_box, join, transpose
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.recurrent_inputs import recurrent_grad_inputs, recurrent_inputs
from volumetric.graph.strides import StridedAxis
from volumetric.layers.recurrent import Cell

_UNROLL = 4
"""Elements of dot products that software adapters read at once."""
_THREADS = 512
"""Maximum invocations of a workgroup that holds many weights: with more, none would have the registers."""
_HELD = 64
"""Weights in the registers of an invocation."""
_WORTH = 3
"""Times the weights that a workgroup can hold beyond which more invocations are worth more: they have more reads in
flight."""
_IN_FLIGHT = 16
"""Weights that an invocation reads at once."""
_JOINED = 6
"""Maximum tensors joined by one launch."""
_COLUMNS = 4
"""Maximum units whose dot products an invocation shares in a gradient: one read of a gradient serves all of them."""
_SHARE = 16
"""Elements of a dot product per invocation."""


def recurrent(request: LoweringRequest) -> LoweredNode:
    """Forward through all steps."""
    cell, caps = CELLS[request.attrs["cell"]], request.caps
    batch, length, wide = request.inputs[0]
    width = request.inputs[1][1]
    hidden = wide // cell.blocks
    heads = hidden // width
    cut = workgroup_of(width, cell.blocks, caps)
    at_once = _IN_FLIGHT // cell.blocks if caps.unroll >= 32 else _UNROLL
    starts, bias, keep = recurrent_inputs([source(i) for i in range(2, len(request.inputs))], request.attrs)
    joined = _concatenate_inputs(request, (*starts, *keep), scratch(1))
    buffers = {"from_x": source(0), "weights": scratch(0), "given": joined.at, "y": result(0)}
    buffers |= {"bias": bias[0]} if bias else {}
    buffers |= {"kept": result(len(cell.states))} if cell.saved_count else {}
    turn = transpose(1, wide, width, caps, source(1), scratch(0))
    blocks = ceil_div(width, cut.units)
    each = (
        blocks * (ceil_div(width, cut.parts * at_once) + at_once + cut.parts + 3) + ceil_div(width, cut.workgroup) + 1
    )
    part = ceil_div(length, caps.launches_needed(each, length))
    steps = [
        launch(
            "recurrent",
            batch * heads,
            buffers,
            (batch, length, first, min(first + part, length)),
            constants={
                "HIDDEN": hidden,
                "HEADS": heads,
                "BIAS": bool(request.attrs["bias"]),
                "OTHERS": len(cell.states) - 1,
                "ARRIVED": False,
                "RESETS": request.attrs["resets"],
                "PARTS": cut.parts,
                "UNROLL": at_once,
                "HELD": cut.held_elements(width, width, caps, sums=cell.blocks),
            },
            preludes=("graph/cells", f"graph/cell/{cell.name}", "graph/given"),
            workgroup=cut.workgroup,
        )
        for first in range(0, length, max(part, 1))
    ]
    ends = [
        _last(request, starts, cell, number)
        for number in range(1, len(cell.states))
        if batch and (not request.read_outputs or request.read_outputs[number])
    ]
    return LoweredNode(launches=(turn, *joined.launches, *steps, *ends), scratch=(4 * wide * width, *joined.scratch))


class ConcatenatedInputs(NamedTuple):
    """A buffer with tensors one after the other, the launches that fill it, and its bytes if it must be created."""

    at: BufferRef
    launches: tuple[KernelLaunch, ...] = ()
    scratch: tuple[int, ...] = ()


def _concatenate_inputs(request: LoweringRequest, parts: Sequence[BufferRef], room: BufferRef) -> ConcatenatedInputs:
    """Join small inputs in one buffer, so that kernels stay within the storage buffers of any device."""
    if len(parts) == 1:
        return ConcatenatedInputs(parts[0])
    sizes = [request.size(part.number) for part in parts]
    pieces = [(part, 0, size) for part, size in zip(parts, sizes, strict=True)]
    launches = tuple(
        join(pieces[at : at + _JOINED], room, request.caps, width=sum(sizes), start=sum(sizes[:at]))
        for at in range(0, len(pieces), _JOINED)
        if any(sizes[at : at + _JOINED])
    )
    return ConcatenatedInputs(room, launches, (4 * sum(sizes),))


def _last(request: LoweringRequest, starts: Sequence[BufferRef], cell: Cell, number: int) -> KernelLaunch:
    """Copy a state as the last step leaves it, from the kept values or, without steps, the initial state."""
    batch, length, hidden = request.outputs[0]
    buffers = {"x": result(len(cell.states)) if length else starts[number], "y": result(number)}
    row = length * cell.saved_count * hidden or hidden
    start = row - (cell.saved_count - len(cell.keeps) - number + 1) * hidden if length else 0
    axes = [StridedAxis(size=batch, steps=(row, hidden)), StridedAxis(size=hidden, steps=(1, 1))]
    return copy_box(axes, request.caps, buffers, x_start=start)


def recurrent_grad(request: LoweringRequest) -> LoweredNode:
    """Back-propagation through all steps."""
    cell, caps = CELLS[request.attrs["cell"]], request.caps
    of = recurrent_grad_inputs([source(i) for i in range(len(request.inputs))], request.attrs)
    batch, length, hidden = request.inputs[of.y.number]
    joined = _concatenate_inputs(request, (*of.starts, *of.g_last, *of.keep), scratch(0))
    buffers: dict[str, BufferRef] = {"gy": of.gy, "y": of.y, "weights": of.weight, "given": joined.at, "g_x": result(0)}
    buffers |= {"kept": of.saved[0]} if of.saved else {}
    buffers |= {"g_r": result(1)} if cell.apart else {}
    buffers |= {"g_direct": result(1 + cell.apart)} if cell.direct else {}
    width, others = request.inputs[of.weight.number][1], len(cell.states) - 1
    heads = hidden // width
    deep = cell.blocks * width
    state_bytes = 4 * (1 + max(others, 1)) * width
    cut, staged = grad_workgroup_of(width, deep, state_bytes, caps)
    blocks = ceil_div(width, cut.units)
    rounds = ceil_div(deep, 4 * cut.parts) + ceil_div(cut.units, cut.workgroup) + 7
    each = blocks * rounds + (2 + 2 * others) * ceil_div(width, cut.workgroup) + 1
    part = ceil_div(length, caps.launches_needed(each, length))
    steps = [
        launch(
            "recurrent_grad",
            batch * heads,
            buffers,
            (batch, length, max(last - part, 0), last),
            constants={
                "HIDDEN": hidden,
                "HEADS": heads,
                "ROOM": max(others * width, 1),
                "APART": cell.apart,
                "OTHERS": others,
                "ARRIVED": bool(of.g_last),
                "RESETS": request.attrs["resets"],
                "DIRECT": bool(cell.direct),
                "PARTS": cut.parts,
                "COLUMNS": cut.columns,
                "HELD": cut.held_elements(width, deep, caps),
                "STAGED": int(staged),
            },
            preludes=("graph/cells", f"graph/cell/{cell.name}", "graph/given"),
            workgroup=cut.workgroup,
        )
        for last in range(length, 0, -max(part, 1))
    ]
    return LoweredNode(launches=(*joined.launches, *steps), scratch=joined.scratch)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentWorkgroup:
    """A workgroup for `units` hidden units, `columns` of them an invocation, with `parts` rows of invocations."""

    units: int
    parts: int
    columns: int = 1

    @property
    def workgroup(self) -> int:
        """Invocations."""
        return self.units // self.columns * self.parts

    def held_elements(self, width: int, deep: int, caps: Caps, *, sums: int = 1) -> int:
        """Return how many elements of dot products of length `deep` an invocation holds in registers.

        Parameters
        ----------
        sums : dot products of each column
        """
        if self.units < width:  # it has other columns later
            return 0
        most = _HELD if caps.unroll >= 32 else 2 * caps.unroll
        if self.workgroup > _THREADS:
            most //= 4
        return min(ceil_div(deep, self.parts), most // (self.columns * sums))


def workgroup_of(hidden: int, blocks: int, caps: Caps) -> RecurrentWorkgroup:
    """Columns for the hidden units, and rows that share their dot products if these are long enough.

    Raises
    ------
    UnsupportedError : not even the states fit workgroup memory
    """
    room = caps.max_shared - 4 * hidden
    units = max(32, min(power_of_two(hidden), caps.max_workgroup))
    parts = 1
    while (
        2 * parts * units <= _most_invocations(hidden * blocks * hidden, caps)
        and hidden >= 2 * parts * _SHARE
        and 8 * parts * blocks * units <= room
    ):
        parts *= 2
    if 4 * parts * blocks * units > room:
        raise _too_large(hidden)
    return RecurrentWorkgroup(units=units, parts=parts)


def grad_workgroup_of(hidden: int, deep: int, state_bytes: int, caps: Caps) -> tuple[RecurrentWorkgroup, bool]:
    """Return the workgroup of a gradient, and whether its memory has room for `deep` gradients of pre-activations.

    Raises
    ------
    UnsupportedError : not even the states fit workgroup memory
    """
    units = max(32, min(power_of_two(hidden), caps.max_workgroup))
    columns = min(_COLUMNS, units // 32)
    lanes, room = units // columns, caps.max_shared - state_bytes
    if 4 * units > room:
        raise _too_large(hidden)
    staged = 4 * (units + deep) <= room
    room -= 4 * deep * staged
    parts = 1
    while (
        2 * parts * lanes <= _most_invocations(hidden * deep, caps)
        and deep >= 2 * parts * _SHARE
        and 8 * parts * units <= room
    ):
        parts *= 2
    return RecurrentWorkgroup(units=units, parts=parts, columns=columns), staged


def _most_invocations(weights: int, caps: Caps) -> int:
    most = min(caps.max_workgroup, caps.invocations // 128)
    return most if weights > _WORTH * _HELD * _THREADS else min(most, _THREADS)


def _too_large(hidden: int) -> UnsupportedError:
    return unsupported("recurrent", f"a hidden size of {hidden}: its state exceeds workgroup memory")
