"""Kernels of state-space layers on the rows of a call: a short convolution and a selective scan, with their states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from volumetric.devices.gpu.kernels.dispatch import Constant, Dispatch, WorkgroupGrid, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.recurrence import RING

_GROUP = 64
_ROWS = 8
"""Rows between two barriers of a workgroup."""
_SLICES = 16
"""Invocations that share the rows of a sequence and a channel of a convolution."""
_PARTS = 16
"""Maximum invocations that share the state of a channel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvShape:
    """A convolution.

    Attributes
    ----------
    width : width of the rows that it reads
    start : first column that it reads
    """

    channels: int
    taps: int
    width: int
    start: int
    activation: str


def causal_conv(shape: ConvShape, *, rows: int) -> Dispatch:
    """Convolution of sequences of up to `rows` rows. Buffers: x, conv_params, past, y, ctl."""
    slices = 1 if rows == 1 else _SLICES
    return Dispatch(
        kernel="causal_conv",
        grid=WorkgroupGrid(x=ceil_div(shape.channels, _GROUP), z=slices, rows_each=1, over="pieces"),
        constants={
            "WG": _GROUP,
            "CHANNELS": shape.channels,
            "TAPS": shape.taps,
            "X_STRIDE": 4 * ceil_div(shape.width, 4),
            "START": shape.start,
            "RING": RING,
            "SLICES": slices,
            "MOST": rows,
        },
        preludes=(f"unary/{shape.activation}",),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanShape:
    """A selective scan.

    Attributes
    ----------
    widths, starts : row width and first column of each value that it reads
    each : whether each element of the state has its own rate
    skip_at, bias_at : their offsets among the parameters; None: there is no bias
    dt_max : None: no bound
    """

    heads: int
    head_dim: int
    groups: int
    size: int
    widths: Mapping[str, int]
    starts: Mapping[str, int]
    each: bool
    skip_at: int
    bias_at: int | None
    dt_factor: float
    z_factor: float
    dt_min: float
    dt_max: float | None


def selective_scan(shape: ScanShape, *, rows: int) -> Dispatch:
    """Scan of sequences of up to `rows` rows. Buffers: x, dt, b, c, z, params, state, y, ctl."""
    parts = min(_PARTS, power_of_two(ceil_div(shape.size, 4)))
    constants: dict[str, Constant] = {
        "WG": _GROUP,
        "HEADS": shape.heads,
        "HEAD_DIM": shape.head_dim,
        "GROUPS": shape.groups,
        "SIZE": shape.size,
        "PARTS": parts,
        "ROWS": min(_ROWS, rows),
        "RING": RING,
        "OF_ELEMENT": shape.each,
        "GATED": "z" in shape.starts,
        "SKIP_AT": shape.skip_at,
        "HAS_BIAS": shape.bias_at is not None,
        "BIAS_AT": shape.bias_at or 0,
        "DT_FACTOR": float(shape.dt_factor),
        "Z_FACTOR": float(shape.z_factor),
        "DT_MIN": float(shape.dt_min),
        "DT_MAX": float(shape.dt_max or 0.0),
        "BOUNDED": shape.dt_max is not None,
        "MOST": rows,
    }
    for name in ("x", "dt", "b", "c", "z"):
        constants[f"{name.upper()}_STRIDE"] = 4 * ceil_div(shape.widths.get(name, 4), 4)
        constants[f"{name.upper()}_START"] = shape.starts.get(name, 0)
    return Dispatch(
        kernel="selective_scan",
        grid=WorkgroupGrid(x=ceil_div(shape.heads * shape.head_dim, _GROUP // parts), rows_each=1, over="pieces"),
        constants=constants,
        preludes=("unary/softplus",),
    )
