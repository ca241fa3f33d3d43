"""Steps of recurrent cells, one per time step."""

from __future__ import annotations

from typing import Any

from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.cells import CODES
from volumetric.devices.cpu.kernels.graph.fused_cells import CELL_ARGUMENTS, CELL_GRAD_ARGUMENTS
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.recurrent_inputs import cell_grad_inputs
from volumetric.graph.ops import Node

UNIT = 2.0
"""Estimated nanoseconds per unit of a row, which may need half a dozen exponentials."""


def results(node: Node, *, keep: bool) -> dict[str, int | None]:
    """Outputs of a cell, by name."""
    cell = CELLS[node.attrs["cell"]]
    y, *more = node.outputs
    others = more.pop(0) if len(cell.states) > 1 else None
    return {"y": y, "others": others, "saved": more[0] if cell.keeps and keep else None}


@rule("cell")
def cell(builder: StepBuilder, node: Node) -> None:
    """A time step of all rows."""
    of = CELLS[node.attrs["cell"]]
    from_x, from_h, bias, *before = node.inputs
    rows, size = builder.shape(node.outputs[0])
    builder.add(
        "cell",
        CELL_ARGUMENTS,
        CODES.index(of.name),
        of.blocks,
        reads={"from_x": from_x, "from_h": from_h, "bias": bias, "before": before[0] if before else None},
        writes=results(node, keep=True),
        work=UNIT * rows * size + move_nanoseconds(*(builder.sizes[i] for i in node.inputs)),
        rows=rows,
        sets=builder.shape(bias)[0],
        size=size,
    )


@rule("cell_grad")
def cell_grad(builder: StepBuilder, node: Node) -> None:
    """The backward pass of `cell`."""
    of, inputs = CELLS[node.attrs["cell"]], cell_grad_inputs(node.inputs, node.attrs)
    rows, size = builder.shape(inputs.y)
    g_x, *more = node.outputs
    g_h = more.pop(0) if of.apart else None
    reads: dict[str, Any] = {"gy": inputs.gy, "y": inputs.y}
    reads |= {name: next(iter(getattr(inputs, name)), None) for name in ("g_others", "others", "saved", "before")}
    builder.add(
        "cell_grad",
        CELL_GRAD_ARGUMENTS,
        CODES.index(of.name),
        of.blocks,
        reads=reads,
        writes={"g_x": g_x, "g_h": g_h, "g_before": more[0] if more else None},
        work=UNIT / 2 * rows * size + move_nanoseconds(*(builder.sizes[i] for i in node.inputs)),
        rows=rows,
        size=size,
    )
