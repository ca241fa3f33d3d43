"""Recurrent layers: one workgroup runs all steps of a sequence."""

from __future__ import annotations

from volumetric.kernels.gpu.dispatch import Caps, power_of_two
from volumetric.kernels.gpu.graph.launch import (
    MATHS,
    Lowered,
    Ref,
    Request,
    alone,
    launch,
    result,
    scratch,
    source,
    unsupported,
)
from volumetric.kernels.gpu.graph.moving import transpose

_KEEPS = ("lstm", "gru")


def recurrent(request: Request) -> Lowered:
    """Forward through all steps."""
    cell, caps = request.attrs["cell"], request.caps
    batch, length, wide = request.inputs[0]
    hidden = request.inputs[1][1]
    workgroup = _workgroup(hidden, 4 * hidden, caps)
    buffers = {"from_x": source(0), "weights": scratch(0), "h0": source(2), "y": result(0)}
    buffers |= {"c0": source(3)} if cell == "lstm" else {}
    buffers |= {"bias": source(len(request.inputs) - 1)} if request.attrs["bias"] else {}
    buffers |= {"kept": result(1)} if cell in _KEEPS else {}
    turn = transpose(1, wide, hidden, caps, source(1), scratch(0))
    steps = launch(
        "recurrent",
        batch,
        buffers,
        (batch, length),
        constants={"HIDDEN": hidden, "BIAS": bool(request.attrs["bias"])},
        preludes=(MATHS, "graph/cells", f"graph/cell/{cell}"),
        workgroup=workgroup,
    )
    return Lowered(launches=(turn, steps), scratch=(4 * wide * hidden,))


def recurrent_grad(request: Request) -> Lowered:
    """Back-propagation through all steps."""
    cell, caps = request.attrs["cell"], request.caps
    batch, length, hidden = request.inputs[1]
    keeps = int(cell in _KEEPS)
    buffers: dict[str, Ref] = {"gy": source(0), "y": source(1), "weights": source(2 + keeps), "h0": source(3 + keeps)}
    buffers |= {"kept": source(2)} if keeps else {}
    buffers |= {"c0": source(5)} if cell == "lstm" else {}
    buffers["g_x"] = result(0)
    buffers |= {"g_r": result(1)} if cell == "gru" else {}
    return alone(
        launch(
            "recurrent_grad",
            batch,
            buffers,
            (batch, length),
            constants={"HIDDEN": hidden, "APART": cell == "gru"},
            preludes=(MATHS, "graph/cells", f"graph/cell/{cell}"),
            workgroup=_workgroup(hidden, 8 * hidden, caps),
        )
    )


def _workgroup(hidden: int, shared: int, caps: Caps) -> int:
    if shared > caps.max_shared:
        raise unsupported("recurrent", f"a hidden size of {hidden}: its state exceeds workgroup memory")
    return max(32, min(power_of_two(hidden), caps.max_workgroup))
