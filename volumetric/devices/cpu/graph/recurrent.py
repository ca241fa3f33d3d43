"""Steps of recurrent cells: one table step per time step."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from volumetric.devices.cpu.graph.elements import copy
from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.cells import CODES
from volumetric.devices.cpu.kernels.graph.recurrent_steps import (
    BACK_ARGUMENTS,
    PACK_ARGUMENTS,
    STEP_ARGUMENTS,
    packed_bytes,
)
from volumetric.devices.cpu.step_builder import StepBuilder, TensorAddress
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.recurrent_inputs import recurrent_grad_inputs, recurrent_inputs
from volumetric.graph.ops import Node
from volumetric.graph.strides import strides_of
from volumetric.layers.recurrent import Cell

_PACKED_PRODUCTS = 8
"""Number of products of a state with the weights from which packing them pays."""


def _concatenate(builder: StepBuilder, parts: Sequence[int], shape: tuple[int, int], *, by_row: bool) -> int:
    """Return tensors ``[B, H]`` one after the other, or side by side in each row; a single one unchanged."""
    if len(parts) == 1:
        return parts[0]
    batch, size = shape
    whole = builder.temporary(4 * len(parts) * batch * size)
    apart, row = (size, len(parts) * size) if by_row else (batch * size, size)
    for at, part in enumerate(parts):
        copy(builder, TensorAddress(part), TensorAddress(whole, 4 * at * apart), shape, strides_of(shape), (row, 1))
    return whole


def _states(builder: StepBuilder, cell: Cell, starts: Sequence[int], y: int, stored: int, at: int) -> dict[str, Any]:
    """Places of the states before step `at`: in the initial states, or in the rows of y and `_state_after_step`."""
    _, length, size = builder.shape(y)
    second = len(starts) > 1
    if at == 0:
        c = TensorAddress(starts[1]) if second else 0
        return {"h": TensorAddress(starts[0]), "h_row": 4 * size, "c": c, "c_row": 4 * (len(cell.states) - 1) * size}
    c, row = _state_after_step(builder, cell, y, stored, at - 1)
    return {
        "h": TensorAddress(y, 4 * (at - 1) * size),
        "h_row": 4 * length * size,
        "c": c if second else 0,
        "c_row": row,
    }


def _state_after_step(builder: StepBuilder, cell: Cell, y: int, stored: int, at: int) -> tuple[TensorAddress, int]:
    """Place of the states other than h after step `at`, and the bytes between rows.

    They are in the rows of kept values; if those are temporary, at the same place in every step, because only the next
    step reads them.
    """
    _, length, size = builder.shape(y)
    if stored >= len(builder.graph.tensors):
        return TensorAddress(stored), 4 * (len(cell.states) - 1) * size
    each = 4 * cell.saved_count * size
    return TensorAddress(stored, each * at + 4 * len(cell.keeps) * size), length * each


def _packed_weight(builder: StepBuilder, weight: int, blocks: int, products: int) -> tuple[int, ...]:
    """Weights packed in the order of panels, if they are used often enough; else None."""
    wide, width = builder.shape(weight)
    if products < _PACKED_PRODUCTS:
        return ()
    size = wide // blocks
    packed = builder.temporary(packed_bytes(size, width, blocks))
    builder.add(
        "recurrent_pack",
        PACK_ARGUMENTS,
        blocks,
        reads={"weight": weight},
        writes={"packed": packed},
        work=move_nanoseconds(8 * wide * width),
        size=size,
        width=width,
    )
    return (packed,)


@rule("recurrent")
def recurrent(builder: StepBuilder, node: Node) -> None:
    """One table step per time step."""
    cell = CELLS[node.attrs["cell"]]
    from_x, weight, *rest = node.inputs
    starts, bias, keep = recurrent_inputs(rest, node.attrs)
    y, *more = node.outputs
    stored = more.pop() if cell.saved_count else y
    batch, length, size = builder.shape(y)
    outputs = node.outputs
    read = stored in builder.outputs or any(stored in other.inputs for other in builder.graph.nodes)
    if cell.saved_count and not read:  # only gradients read it
        stored = builder.temporary(4 * batch * max(len(cell.states) - 1, 1) * size)
        outputs = (y, *more, stored)
    products = 2 * prod(builder.shape(weight)) * batch
    packed = _packed_weight(builder, weight, cell.blocks, length if builder.batch_invariant else batch * length)
    starts = _joined_states(builder, starts, (batch, size)) if length else starts
    for at in range(length):
        after, row = _state_after_step(builder, cell, y, stored, at)
        builder.add(
            "recurrent_step",
            STEP_ARGUMENTS,
            *_constants(cell),
            reads=(*node.inputs, *outputs, *packed, *starts),
            writes=outputs,
            work=products / 40 + 4 * batch * size,
            from_x=TensorAddress(from_x),
            weight=TensorAddress(weight),
            bias=TensorAddress(bias[0]) if bias else 0,
            y=TensorAddress(y),
            kept=TensorAddress(stored) if cell.saved_count and read else 0,
            after=after,
            after_row=row,
            batch=batch,
            length=length,
            size=size,
            at=at,
            packed=TensorAddress(packed[0]) if packed else 0,
            keep=TensorAddress(keep[0]) if keep else 0,
            width=builder.shape(weight)[1],
            **_states(builder, cell, starts, y, stored, at),
        )
    for number, last in enumerate(more):  # gradients of c and others before the first step
        own = _states(builder, cell, starts, y, stored, length)
        if length:
            place = TensorAddress(own["c"].tensor, own["c"].offset + 4 * number * size)
            row = own["c_row"] // 4
        else:
            place, row = TensorAddress(starts[1 + number]), size
        copy(builder, place, TensorAddress(last), (batch, size), (row, 1), strides_of((batch, size)))


def _joined_states(builder: StepBuilder, starts: Sequence[int], shape: tuple[int, int]) -> tuple[int, ...]:
    """Return h, and the other states side by side in a tensor."""
    first, *others = starts
    return (first, _concatenate(builder, others, shape, by_row=True)) if others else (first,)


def _constants(cell: Cell) -> tuple[int, int, int]:
    return CODES.index(cell.name), cell.blocks, cell.saved_count


@rule("recurrent_grad")
def recurrent_grad(builder: StepBuilder, node: Node) -> None:
    """The backward pass, one table step per time step."""
    cell = CELLS[node.attrs["cell"]]
    of = recurrent_grad_inputs(node.inputs, node.attrs)
    stored = of.saved[0] if cell.saved_count else of.y
    g_x, *more = node.outputs
    batch, length, size = builder.shape(of.y)
    products = 2 * prod(builder.shape(of.weight)) * batch
    carry = TensorAddress(more[-1]) if cell.direct else 0
    starts = _joined_states(builder, of.starts, (batch, size))
    g_last = (_concatenate(builder, of.g_last, (batch, size), by_row=False),) if of.g_last else ()
    for at in reversed(range(length)):
        builder.add(
            "recurrent_back",
            BACK_ARGUMENTS,
            *_constants(cell),
            reads=(*node.inputs, *node.outputs, *starts, *g_last),
            writes=node.outputs,
            work=products / 20 + 4 * batch * size,
            gy=TensorAddress(of.gy),
            y=TensorAddress(of.y),
            kept=TensorAddress(stored),
            weight=TensorAddress(of.weight),
            g_x=TensorAddress(g_x),
            g_h=TensorAddress(more[0] if cell.apart else g_x),
            arrived=carry if at + 1 < length else TensorAddress(g_last[0]) if g_last else 0,
            carry=carry,
            batch=batch,
            length=length,
            size=size,
            at=at,
            keep=TensorAddress(of.keep[0]) if of.keep else 0,
            width=builder.shape(of.weight)[1],
            **_states(builder, cell, starts, of.y, stored, at),
        )
