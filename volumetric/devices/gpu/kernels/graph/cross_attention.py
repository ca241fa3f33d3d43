"""Cross attention of many small parts of one table: one launch up to the heads' results, then a product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.dispatch import Caps, ceil_div, power_of_two
from volumetric.devices.gpu.kernels.graph.gemm import gemm
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    launch,
    scratch,
    source,
)

_TEAMS = (1, 2, 4)
"""Invocations that share a query row: as few as keep the device busy."""
_ITEMS = (4, 2, 1)
"""Rows for which an invocation computes a vector at once."""
_TILES = (64, 32, 16, 8)
"""Rows of a workgroup."""
_NEXT = (4, 2, 1)
"""Vectors of a row loaded concurrently: for 1,600 edges of 64 × 64 rows an H100 takes 0.34 ms with 4, 0.47 with 1, and
0.32 with 16, which are four times as much code."""
_BUFFERS = 12
_OUT = 6, 10
"""Input indices of the weights and of the bias of the output projection."""


def _workgroup_bytes_of(tile: int, wide: int) -> int:
    """Bytes of workgroup memory: three tiles of rows of `wide` vectors, and what teams join."""
    return 3 * 16 * tile * (wide + 1) + 4 * _TEAMS[-1] * tile


def _tile(rows: int, wide: int, caps: Caps) -> int | None:
    """Rows of a workgroup: a power of two, no more than exist; None if not even a few fit."""
    fitting = [
        t for t in _TILES if _workgroup_bytes_of(t, wide) <= caps.max_shared and t * _TEAMS[-1] <= caps.max_workgroup
    ]
    return max((t for t in fitting if t <= power_of_two(rows)), default=min(fitting, default=None))


def supports_cross_attend(inputs: Sequence[Shape], heads: int, caps: Caps) -> bool:
    """Whether the kernel supports it: heads of whole vectors that fit, on a GPU that binds enough buffers."""
    width = inputs[0][1]
    return (
        width % (4 * heads) == 0
        and all(0 not in shape for shape in inputs)
        and caps.max_storage_buffers >= _BUFFERS
        and _tile(max(inputs[1][2], inputs[2][2]), width // heads // 4, caps) is not None
    )


def cross_attend(request: LoweringRequest) -> LoweredNode:
    """The heads' results, and the output projection."""
    (table, width), (edges, parts, n), (_, _, m) = request.inputs[:3]
    heads, caps = request.attrs["heads"], request.caps
    wide = width // heads // 4
    tile = _tile(max(n, m), wide, caps)
    assert tile is not None  # as checked by `supports_cross_attend`
    blocks = ceil_div(n, tile)
    total = edges * parts * heads * blocks
    team = next((count for count in _TEAMS if total * tile * count >= caps.invocations), _TEAMS[-1])
    workgroup = tile * team
    # Vectors of several rows are of the same columns if a workgroup has all vectors of its rows.
    items = next(n for n in _ITEMS if n == 1 or (workgroup % wide == 0 and tile * wide % (workgroup * n) == 0))
    names = ("rows", "asks", "tells", "w_q", "w_k", "w_v")
    buffers = {name: source(number) for number, name in enumerate(names)}
    buffers |= {name: source(7 + number) for number, name in enumerate(("b_q", "b_k", "b_v"))}
    masked = bool(request.attrs["masked"])
    read = launch(
        "cross_heads",
        total,
        {**buffers, **({"seen": source(11)} if masked else {}), "o": scratch(0)},
        (total, blocks, heads, parts, n, m, table - 1, (width // heads) ** -0.5),
        constants={
            "TILE": tile,
            "TEAM": team,
            "ITEMS": items,
            "WIDE": wide,
            "WIDTH": width // 4,
            "NEXT": next(n for n in _NEXT if width // 4 % n == 0),
            "MASKED": masked,
        },
        workgroup=workgroup,
    )
    size = (edges, parts * n, width)
    attrs = {"trans_a": False, "trans_b": False, "groups": edges, "activation": "linear"}
    shapes = (size, *(request.inputs[number] for number in _OUT))
    product = gemm(LoweringRequest(op="gemm", inputs=shapes, outputs=(size,), attrs=attrs, caps=caps))
    places = (scratch(0), *map(source, _OUT))
    return LoweredNode(
        launches=(read, *(_rebind_launch(one, places) for one in product.launches)),
        scratch=(4 * edges * parts * n * width, *product.scratch),
    )


def _rebind_launch(one: KernelLaunch, places: Sequence[BufferRef]) -> KernelLaunch:
    """Renumber a launch's inputs to `places`, and its scratch after the first."""

    def at(ref: BufferRef) -> BufferRef:
        if ref.place == "input":
            return places[ref.number]
        return scratch(ref.number + 1) if ref.place == "scratch" else ref

    return replace(one, buffers={name: at(ref) for name, ref in one.buffers.items()})
