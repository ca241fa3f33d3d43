"""One step of recurrent cells: one invocation for each unit of a row."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import Constant
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    LoweredNode,
    LoweringRequest,
    one_each,
    result,
    single_launch,
    source,
)
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.recurrent_inputs import cell_grad_inputs
from volumetric.layers.recurrent import Cell


def _constants(cell: Cell, size: int) -> dict[str, Constant]:
    return {"HIDDEN": size, "OTHERS": len(cell.states) - 1, "DIRECT": len(cell.direct)}


def _preludes(cell: Cell) -> tuple[str, ...]:
    return "graph/cells", f"graph/cell/{cell.name}"


def cell(request: LoweringRequest) -> LoweredNode:
    """A step of all rows; kept values are written only if something reads them."""
    of = CELLS[request.attrs["cell"]]
    rows, size = request.outputs[0]
    several = len(of.states) > 1
    keep = bool(of.keeps) and (not request.read_outputs or request.read_outputs[1 + several])
    buffers: dict[str, BufferRef] = {"from_x": source(0), "from_h": source(1), "bias": source(2), "y": result(0)}
    buffers |= {"before": source(3)} if of.direct else {}
    buffers |= {"others": result(1)} if several else {}
    buffers |= {"saved": result(1 + several)} if keep else {}
    return single_launch(
        one_each(
            "cell_step",
            rows * size,
            request.caps,
            buffers,
            (rows * size, rows, rows // request.inputs[2][0]),
            constants={**_constants(of, size), "KEEP": keep},
            preludes=_preludes(of),
        )
    )


def cell_grad(request: LoweringRequest) -> LoweredNode:
    """The backward pass of `cell`."""
    of = CELLS[request.attrs["cell"]]
    inputs = cell_grad_inputs([source(i) for i in range(len(request.inputs))], request.attrs)
    rows, size = request.inputs[0]
    buffers: dict[str, BufferRef] = {"gy": inputs.gy, "g_x": result(0)}
    buffers |= {} if of.keeps else {"y": inputs.y}
    for name in ("g_others", "others", "saved", "before"):
        buffers |= dict.fromkeys((name,), *getattr(inputs, name)) if getattr(inputs, name) else {}
    buffers |= {"g_r": result(1)} if of.apart else {}
    buffers |= {"g_before": result(1 + of.apart)} if of.direct else {}
    return single_launch(
        one_each(
            "cell_grad",
            rows * size,
            request.caps,
            buffers,
            (rows * size,),
            constants={**_constants(of, size), "APART": of.apart},
            preludes=_preludes(of),
        )
    )
