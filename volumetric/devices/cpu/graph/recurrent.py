"""Steps of recurrent cells: one table step per time step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from volumetric.devices.cpu.graph.elements import copy
from volumetric.devices.cpu.graph.steps import moved, rule
from volumetric.devices.cpu.kernels.graph.cells import CODES
from volumetric.devices.cpu.kernels.graph.sequences import (
    BACK_ARGUMENTS,
    PACK_ARGUMENTS,
    STEP_ARGUMENTS,
    packed_bytes,
)
from volumetric.devices.cpu.steps import Address, Draft
from volumetric.graph.numeric.cells import CELLS
from volumetric.graph.operations.recurrent_inputs import back_inputs, given
from volumetric.graph.ops import Node
from volumetric.graph.strides import strides_of
from volumetric.layers.recurrent import Cell

_PACKED_PRODUCTS = 8
"""Number of products of a state with the weights from which packing them pays."""


def _beside(draft: Draft, parts: Sequence[int], shape: tuple[int, int], *, by_row: bool) -> int:
    """Return tensors ``[B, H]`` one after the other, or side by side in each row; a single one unchanged."""
    if len(parts) == 1:
        return parts[0]
    batch, size = shape
    whole = draft.temporary(4 * len(parts) * batch * size)
    apart, row = (size, len(parts) * size) if by_row else (batch * size, size)
    for at, part in enumerate(parts):
        copy(draft, Address(part), Address(whole, 4 * at * apart), shape, strides_of(shape), (row, 1))
    return whole


def _states(draft: Draft, cell: Cell, starts: Sequence[int], y: int, stored: int, at: int) -> dict[str, Any]:
    """Places of the states before step `at`: in the initial states, or in the rows of y and `_behind`."""
    _, length, size = draft.shape(y)
    second = len(starts) > 1
    if at == 0:
        c = Address(starts[1]) if second else 0
        return {"h": Address(starts[0]), "h_row": 4 * size, "c": c, "c_row": 4 * (len(cell.states) - 1) * size}
    c, row = _behind(draft, cell, y, stored, at - 1)
    return {"h": Address(y, 4 * (at - 1) * size), "h_row": 4 * length * size, "c": c if second else 0, "c_row": row}


def _behind(draft: Draft, cell: Cell, y: int, stored: int, at: int) -> tuple[Address, int]:
    """Place of the states other than h after step `at`, and the bytes between rows.

    They are in the rows of kept values; if those are temporary, at the same place in every step, because only the next
    step reads them.
    """
    _, length, size = draft.shape(y)
    if stored >= len(draft.graph.tensors):
        return Address(stored), 4 * (len(cell.states) - 1) * size
    each = 4 * cell.kept * size
    return Address(stored, each * at + 4 * len(cell.keeps) * size), length * each


def _packed(draft: Draft, weight: int, blocks: int, products: int) -> tuple[int, ...]:
    """Weights packed in the order of panels, if they are used often enough; else None."""
    wide, width = draft.shape(weight)
    if products < _PACKED_PRODUCTS:
        return ()
    size = wide // blocks
    packed = draft.temporary(packed_bytes(size, width, blocks))
    draft.add(
        "recurrent_pack",
        PACK_ARGUMENTS,
        blocks,
        reads={"weight": weight},
        writes={"packed": packed},
        work=moved(8 * wide * width),
        size=size,
        width=width,
    )
    return (packed,)


@rule("recurrent")
def recurrent(draft: Draft, node: Node) -> None:
    """One table step per time step."""
    cell = CELLS[node.attrs["cell"]]
    from_x, weight, *rest = node.inputs
    starts, bias, keep = given(rest, node.attrs)
    y, *more = node.outputs
    stored = more.pop() if cell.kept else y
    batch, length, size = draft.shape(y)
    outputs = node.outputs
    read = stored in draft.outputs or any(stored in other.inputs for other in draft.graph.nodes)
    if cell.kept and not read:  # only gradients read it
        stored = draft.temporary(4 * batch * max(len(cell.states) - 1, 1) * size)
        outputs = (y, *more, stored)
    products = 2 * prod(draft.shape(weight)) * batch
    packed = _packed(draft, weight, cell.blocks, length if draft.alike else batch * length)
    starts = _joined(draft, starts, (batch, size)) if length else starts
    for at in range(length):
        after, row = _behind(draft, cell, y, stored, at)
        draft.add(
            "recurrent_step",
            STEP_ARGUMENTS,
            *_constants(cell),
            reads=(*node.inputs, *outputs, *packed, *starts),
            writes=outputs,
            work=products / 40 + 4 * batch * size,
            from_x=Address(from_x),
            weight=Address(weight),
            bias=Address(bias[0]) if bias else 0,
            y=Address(y),
            kept=Address(stored) if cell.kept and read else 0,
            after=after,
            after_row=row,
            batch=batch,
            length=length,
            size=size,
            at=at,
            packed=Address(packed[0]) if packed else 0,
            keep=Address(keep[0]) if keep else 0,
            width=draft.shape(weight)[1],
            **_states(draft, cell, starts, y, stored, at),
        )
    for number, last in enumerate(more):  # gradients of c and others before the first step
        own = _states(draft, cell, starts, y, stored, length)
        if length:
            place = Address(own["c"].tensor, own["c"].offset + 4 * number * size)
            row = own["c_row"] // 4
        else:
            place, row = Address(starts[1 + number]), size
        copy(draft, place, Address(last), (batch, size), (row, 1), strides_of((batch, size)))


def _joined(draft: Draft, starts: Sequence[int], shape: tuple[int, int]) -> tuple[int, ...]:
    """Return h, and the other states side by side in a tensor."""
    first, *others = starts
    return (first, _beside(draft, others, shape, by_row=True)) if others else (first,)


def _constants(cell: Cell) -> tuple[int, int, int]:
    return CODES.index(cell.name), cell.blocks, cell.kept


@rule("recurrent_grad")
def recurrent_grad(draft: Draft, node: Node) -> None:
    """The backward pass, one table step per time step."""
    cell = CELLS[node.attrs["cell"]]
    of = back_inputs(node.inputs, node.attrs)
    stored = of.kept[0] if cell.kept else of.y
    g_x, *more = node.outputs
    batch, length, size = draft.shape(of.y)
    products = 2 * prod(draft.shape(of.weight)) * batch
    carry = Address(more[-1]) if cell.direct else 0
    starts = _joined(draft, of.starts, (batch, size))
    g_last = (_beside(draft, of.g_last, (batch, size), by_row=False),) if of.g_last else ()
    for at in reversed(range(length)):
        draft.add(
            "recurrent_back",
            BACK_ARGUMENTS,
            *_constants(cell),
            reads=(*node.inputs, *node.outputs, *starts, *g_last),
            writes=node.outputs,
            work=products / 20 + 4 * batch * size,
            gy=Address(of.gy),
            y=Address(of.y),
            kept=Address(stored),
            weight=Address(of.weight),
            g_x=Address(g_x),
            g_h=Address(more[0] if cell.apart else g_x),
            arrived=carry if at + 1 < length else Address(g_last[0]) if g_last else 0,
            carry=carry,
            batch=batch,
            length=length,
            size=size,
            at=at,
            keep=Address(of.keep[0]) if of.keep else 0,
            width=draft.shape(of.weight)[1],
            **_states(draft, cell, starts, of.y, stored, at),
        )
