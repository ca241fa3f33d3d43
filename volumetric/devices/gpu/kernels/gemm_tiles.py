"""The matrix product of `matmul` for many rows: tiles of both operands in workgroup memory.

`gemm` is the product, `row_stats` computes the statistics for its norm.
"""

from __future__ import annotations

from dataclasses import dataclass

from volumetric.devices.gpu.kernels.dispatch import Caps, Dispatch, WorkgroupGrid, ceil_div
from volumetric.devices.gpu.kernels.matmul import NORMS, MatmulShape, reduction_bytes
from volumetric.devices.gpu.kernels.matrix_stacks import ONE, MatrixStack
from volumetric.devices.gpu.kernels.row_predicate import NONE, RowPredicate


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmTile:
    """A workgroup's share: `m` x `n` dot products in steps of `k`; 4 `vectors` rows and 8 columns an invocation.

    `slices` groups of invocations, a power of two, share the steps; workgroup memory holds `buffers` tiles at once.
    """

    m: int
    n: int
    k: int
    vectors: int
    slices: int = 1
    buffers: int = 1

    @property
    def workgroup(self) -> int:
        """Invocations: each has 4·vectors rows and 8 columns of a slice."""
        return self.m // (4 * self.vectors) * (self.n // 8) * self.slices

    @property
    def shared(self) -> int:
        """Bytes of workgroup memory for tiles."""
        tiles = self.buffers * self.k * (self.m // 4 + self.n // 4 + 2)
        return 16 * max(tiles, self.slices // 2 * self.m * self.n // 4)


TILES = (
    GemmTile(m=128, n=128, k=32, vectors=2),
    GemmTile(m=128, n=128, k=16, vectors=2),
    GemmTile(m=64, n=64, k=32, vectors=2, slices=2),
    GemmTile(m=64, n=64, k=64, vectors=2, slices=4),
    GemmTile(m=32, n=64, k=32, vectors=1),
    GemmTile(m=16, n=64, k=32, vectors=1),
)
"""From the most arithmetic for each byte to the most workgroups. Some devices lack workgroup memory for some."""
_LONG_K = 2048
"""From here on two slices of a tile beat four on an H100; below, four hide the short loop's latency better."""


def choose_tile(shape: MatmulShape, rows: int, caps: Caps, *, matrices: int = 1) -> GemmTile:
    """Largest tile that wastes little on `rows` and still leaves work for the whole device; else the least wasteful.

    With several `matrices`, each has so many rows, and one launch computes all products.
    Work for the device means enough invocations, and enough slices that no processor is idle.
    """
    fitting = [
        t
        for t in TILES
        if t.workgroup <= caps.max_workgroup and t.shared + reduction_bytes(t.workgroup, caps) <= caps.max_shared
    ]
    if shape.k < _LONG_K and any(t.slices == 4 for t in fitting):
        fitting = [t for t in fitting if t.slices != 2]
    enough = caps.invocations // 1024

    def groups(tile: GemmTile) -> int:
        return matrices * ceil_div(rows, tile.m) * ceil_div(shape.n * shape.parts, tile.n)

    for tile in fitting:
        busy = groups(tile) * tile.slices >= enough and groups(tile) * tile.workgroup >= caps.invocations // 8
        if rows > tile.m // 2 and busy:
            return tile
    return min(fitting, key=lambda t: (ceil_div(rows, t.m) * t.m * t.n, groups(t) < enough, -t.m))


def gemm(
    shape: MatmulShape,
    caps: Caps,
    tile: GemmTile,
    *,
    first: int,
    units: int,
    guard: RowPredicate = NONE,
    stack: MatrixStack = ONE,
) -> Dispatch:
    """Many rows times the rows of a shard: outputs `first` … `first + units`; `first` is a multiple of 4.

    Buffers: x, weights, scales, bias, norm_params, residual, y, stats (of `row_stats`, if there is a norm), ctl; those
    of the predicate and of the stack.
    """
    constants = shape.constants() | {
        "FIRST": first,
        "UNITS": units,
        "WG": tile.workgroup,
        "BM": tile.m,
        "BATCH": tile.m,
        "BN": tile.n,
        "BK": tile.k,
        "TM4": tile.vectors,
        "SLICES": tile.slices,
        "BUFFERS": tile.buffers,
        "KU": min(tile.k // tile.slices, caps.unroll),
        **guard.over(tile.m),
        **stack.constants,
    }
    groups = ceil_div(units * shape.parts, tile.n)
    return Dispatch(
        kernel="gemm",
        grid=stack.grid(groups, tile.m) or WorkgroupGrid(x=groups, rows_each=tile.m),
        constants=constants,
        preludes=(
            *shape.format.preludes,
            f"unary/{shape.activation}",
            "bounded",
            *stack.preludes("batch/many"),
            "finish",
            guard.prelude,
        ),
    )


def row_stats(shape: MatmulShape) -> Dispatch:
    """Mean and reciprocal deviation of each row of x, four numbers a row. Buffers: x, stats, ctl."""
    return Dispatch(
        kernel="row_stats",
        grid=WorkgroupGrid(x=1, rows_each=1),
        constants={"WG": 128, "K": shape.k, "NORM": NORMS[shape.norm], "EPS": float(shape.norm_eps)},
    )
