"""Operations on rows: a team of neighbouring invocations shares each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volumetric.devices.gpu.kernels.dispatch import Caps, Constant, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    launch,
    result,
    scratch,
    single_launch,
    source,
)
from volumetric.devices.gpu.kernels.graph.reduce import column_split, sum_rows

_LANES = 32
"""Invocations that share a row of usual length: at most a subgroup, so that they need no barrier."""
_LONG = 2048
"""Elements from which a whole workgroup shares a row."""
_HELD = 32
"""Maximum elements of a row in the registers of an invocation."""


def team_of(rows: int, width: int, caps: Caps) -> tuple[int, int]:
    """Invocations per row, and per workgroup."""
    most = _LANES
    if width >= _LONG or rows * _LANES < caps.invocations // 8:
        most = 256
    team = min(power_of_two(width), most, caps.max_workgroup)
    return team, max(team, min(128, caps.max_workgroup))


def held_team_of(rows: int, width: int, values: int, caps: Caps) -> tuple[int, int, int]:
    """Return invocations per row and per workgroup, and elements that an invocation reads at once.

    Parameters
    ----------
    values : registers for each element
    """
    most = max(min(_HELD, caps.unroll) // values, 1)
    team, _ = team_of(rows, width, caps)
    if caps.unroll >= _HELD:
        team = max(team, min(power_of_two(ceil_div(width, most)), 256, caps.max_workgroup))
    return team, max(team, min(128, caps.max_workgroup)), min(most, ceil_div(width, team))


def rowwise(
    kernel: str,
    shape: Sequence[int],
    caps: Caps,
    buffers: Mapping[str, BufferRef],
    *,
    extra: Sequence[int | float] = (),
    constants: Mapping[str, Constant] | None = None,
    preludes: tuple[str, ...] = (),
    held: int = 0,
) -> KernelLaunch:
    """Return a launch over rows of `shape`; dims are rows, width and `extra`.

    Parameters
    ----------
    held : registers that the kernel has for each element of a row that it holds; 0: it holds none
    """
    rows, width = shape
    team, workgroup = team_of(rows, width, caps)
    if held:
        team, workgroup, each = held_team_of(rows, width, held, caps)
        constants = {"HELD": each, "WHOLE": team * each >= width, **(constants or {})}
        preludes = ("graph/held_row", *preludes)
    return launch(
        kernel,
        ceil_div(rows, workgroup // team),
        buffers,
        (rows, width, *extra),
        constants={"TEAM": team, **(constants or {})},
        preludes=preludes,
        workgroup=workgroup,
    )


def softmax(request: LoweringRequest) -> LoweredNode:
    """Softmax of each row."""
    return single_launch(rowwise("softmax", request.inputs[0], request.caps, {"x": source(0), "y": result()}, held=1))


def softmax_grad(request: LoweringRequest) -> LoweredNode:
    """Gradient of softmax from its output."""
    return _grad(request, exponent=1.0, normalised=False)


def entmax_grad(request: LoweringRequest) -> LoweredNode:
    """Gradient of entmax from its output."""
    return _grad(request, exponent=2.0 - request.attrs["alpha"], normalised=True)


def _grad(request: LoweringRequest, *, exponent: float, normalised: bool) -> LoweredNode:
    buffers = {"y": source(0), "g": source(1), "gx": result()}
    constants = {"EXPONENT": float(exponent), "NORMALISED": normalised}
    return single_launch(rowwise("softmax_grad", request.inputs[0], request.caps, buffers, constants=constants, held=2))


def entmax(request: LoweringRequest) -> LoweredNode:
    """α-entmax of each row."""
    alpha, width = float(request.attrs["alpha"]), request.inputs[0][1]
    constants = {"ALPHA": alpha, "POWER": 1.0 / (alpha - 1.0)}
    buffers = {"x": source(0), "y": result()}
    highest = -(float(width) ** (1.0 - alpha))
    return single_launch(
        rowwise("entmax", request.inputs[0], request.caps, buffers, extra=(highest,), constants=constants)
    )


def keep_largest(request: LoweringRequest) -> LoweredNode:
    """The k largest of each row."""
    constants = {"INDEX_BITS": max(request.inputs[0][1] - 1, 0).bit_length()}
    buffers = {"x": source(0), "y": result()}
    extra = (request.attrs["k"],)
    launch = rowwise(
        "keep_largest",
        request.inputs[0],
        request.caps,
        buffers,
        extra=extra,
        constants=constants,
        preludes=("order",),
    )
    return single_launch(launch)


def norm(request: LoweringRequest) -> LoweredNode:
    """RMS or layer norm of each row, with its statistics."""
    gain, bias = len(request.inputs) > 1, len(request.inputs) > 2
    buffers = {"x": source(0), "y": result(0), "stats": result(1)}
    buffers |= {"gain": source(1)} if gain else {}
    buffers |= {"bias": source(2)} if bias else {}
    constants = _norm_constants(request, gain=gain) | {"EPS": float(request.attrs["eps"]), "BIAS": bias}
    return single_launch(rowwise("norm", request.inputs[0], request.caps, buffers, constants=constants, held=1))


def norm_grad(request: LoweringRequest) -> LoweredNode:
    """Gradient of a norm with respect to its rows."""
    gain = len(request.inputs) > 3
    buffers = {"g": source(0), "x": source(1), "stats": source(2), "gx": result()}
    buffers |= {"gain": source(3)} if gain else {}
    constants = _norm_constants(request, gain=gain)
    return single_launch(rowwise("norm_grad", request.inputs[0], request.caps, buffers, constants=constants, held=2))


def _norm_constants(request: LoweringRequest, *, gain: bool) -> dict[str, Constant]:
    unit = 1.0 if request.attrs["unit_offset"] else 0.0
    return {"LAYER": request.attrs["kind"] == "layer", "UNIT": unit, "GAIN": gain}


def norm_param_grad(request: LoweringRequest) -> LoweredNode:
    """Gradients of a norm's gain and bias: column sums."""
    rows, width = request.inputs[0]
    caps, bias = request.caps, bool(request.attrs["bias"])
    columns, workgroup, splits = column_split(width, rows, caps)
    chunk = ceil_div(rows, splits)
    targets = [result(0), result(1)] if bias else [result(0)]
    sums = targets if splits == 1 else [scratch(i) for i in range(len(targets))]
    buffers = {"g": source(0), "x": source(1), "stats": source(2), "gain_sum": sums[0]}
    buffers |= {"bias_sum": sums[1]} if bias else {}
    first = launch(
        "norm_param_grad",
        ceil_div(width, columns) * splits,
        buffers,
        (rows, width, chunk, splits),
        constants={"COLUMNS": columns, "BIAS": bias},
        workgroup=workgroup,
    )
    if splits == 1:
        return single_launch(first)
    joins = [sum_rows(splits, width, caps, part, target) for part, target in zip(sums, targets, strict=True)]
    return LoweredNode(launches=(first, *joins), scratch=(4 * splits * width,) * len(targets))
