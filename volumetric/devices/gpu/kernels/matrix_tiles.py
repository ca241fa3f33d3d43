"""The matrix product of `matmul` for many rows on matrix units: halves are multiplied, sums are float32.

`halve_rows` norms and rounds the rows of x, `matrix_gemm` is the product, `join_splits` adds up partial ones. A GPU
without matrix units runs the same kernel with emulated fragments.
"""

from __future__ import annotations

from dataclasses import dataclass

from volumetric.devices.gpu.kernels.dispatch import MATRIX_LANES, Caps, Dispatch, WorkgroupGrid, ceil_div
from volumetric.devices.gpu.kernels.matmul import MatmulShape, most_batched
from volumetric.devices.gpu.kernels.matrix_stacks import ONE, MatrixStack
from volumetric.devices.gpu.kernels.row_predicate import NONE, RowPredicate
from volumetric.devices.gpu.kernels.weight_formats import FORMATS, WeightFormat

_PADDING = 8
"""Halves by which a row of a tile is longer, so that fragments spread over banks."""
_FRAGMENT_BYTES = 1024
_SUMS_PADDING = 4
"""Numbers by which a row of staged sums is longer."""
_ROW_UNIT = 128
"""Rows of x are padded to a multiple of so many halves, the longest step of a tile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTile:
    """A workgroup's share, `m` x `n` dot products in steps of `k`, and a subgroup's, `rows` x `columns` of them.

    Attributes
    ----------
    ahead : steps, 1 or 2, of which both sides are in registers
    slices : subgroups that share a step of the same dot products
    """

    m: int
    n: int
    k: int
    rows: int
    columns: int
    ahead: int = 1
    slices: int = 1

    @property
    def subgroups(self) -> int:
        """Subgroups of a workgroup."""
        return self.m // self.rows * (self.n // self.columns) * self.slices

    @property
    def workgroup(self) -> int:
        """Invocations."""
        return MATRIX_LANES * self.subgroups

    def staged(self, max_shared: int) -> int | None:
        """Subgroups, a power of two, that write their sums to workgroup memory at a time; None: there is no room.

        With slices it is 0: all write all of their sums, to add those of the slices.
        """
        room = max_shared - self.tile_bytes
        if self.slices > 1:
            return 0 if 4 * self.slices * self.m * (self.n + _SUMS_PADDING) <= room else None
        return self.writing(room) or None

    def writing(self, room: int) -> int:
        """Subgroups, a power of two, whose fragments of sums fit into so many bytes of workgroup memory; 0: none."""
        fragments = room // _FRAGMENT_BYTES
        return min(self.subgroups, 1 << fragments.bit_length() - 1) if fragments > 0 else 0

    @property
    def tile_bytes(self) -> int:
        """Bytes of workgroup memory for both sides."""
        return 2 * (self.m + self.n) * (self.k + _PADDING)


TILES = (
    MatrixTile(m=128, n=128, k=64, rows=32, columns=32),
    MatrixTile(m=64, n=128, k=64, rows=16, columns=32),
    MatrixTile(m=64, n=64, k=64, rows=16, columns=32),
    MatrixTile(m=32, n=64, k=64, rows=16, columns=32),
    MatrixTile(m=16, n=64, k=64, rows=16, columns=32),
)
"""From the most arithmetic for each byte to the most workgroups, for rows and in graphs.

Measured on an H200: 128 x 128 reaches 210 to 250 TFLOP/s of float16; 16 rows of 7B read 2.4 to 2.6 TB/s."""
_MORE_TILES = (
    MatrixTile(m=128, n=96, k=64, rows=32, columns=32),
    MatrixTile(m=128, n=128, k=32, rows=32, columns=64),
    MatrixTile(m=64, n=128, k=64, rows=32, columns=32),
    MatrixTile(m=64, n=64, k=64, rows=32, columns=32),
    MatrixTile(m=64, n=64, k=128, rows=16, columns=32),
    MatrixTile(m=64, n=32, k=128, rows=32, columns=32, slices=4),
    MatrixTile(m=32, n=64, k=64, rows=16, columns=32, ahead=2),
    MatrixTile(m=16, n=64, k=128, rows=16, columns=32),
    MatrixTile(m=16, n=64, k=128, rows=16, columns=32, ahead=2),
    MatrixTile(m=16, n=32, k=256, rows=16, columns=32, slices=4),
)
"""Tiles that a search tries beside `TILES`."""
EMULATED_TILE = MatrixTile(m=32, n=32, k=32, rows=16, columns=32)
"""Without matrix units: short straight-line code, because software adapters take seconds to compile more of it."""
_LEAST_ROWS = 16
_LEAST_WORK = 72_000_000
"""Products, of one number by one, from which matrix units are worth a launch that rounds the rows: on an H200 64 rows
of 576 x 576 take 11 µs either way, 16 rows of 4096 x 4096 half of the time."""
_MOST_SUMS = 64 * 64
"""Sums of a subgroup that fit its registers."""
TUNED_ROWS = (16, 64, 512)
"""Numbers of rows for which a search is made; others take the cut of the next smaller one, up to `MOST_TUNED_ROWS`."""
MOST_TUNED_ROWS = 1024
"""Beyond so many rows the largest tiles leave work for the whole device, which the search for 512 did not know."""
_LEAST_STEPS = 8
_SPLIT_ROWS = 64
"""Up to so many rows the weights are most of what is read, and steps are split until every processor reads."""
_MOST_SPLITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixCut:
    """A tile, and the number of workgroups that share its steps."""

    tile: MatrixTile
    splits: int = 1


def gains(shape: MatmulShape, rows: int, caps: Caps) -> bool:
    """Whether matrix units beat reading weights for a few rows at a time; emulated ones take all they can."""
    if rows < _LEAST_ROWS:
        return False
    return not caps.matrix_units or rows > most_batched(caps) or rows * shape.k * shape.n * shape.parts >= _LEAST_WORK


def choose_cut(shape: MatmulShape, rows: int, caps: Caps, *, matrices: int = 1, may_split: bool = True) -> MatrixCut:
    """Largest tile that wastes little on `rows` and still leaves work for the whole device.

    With several `matrices`, each has so many rows, and one launch computes all products.
    """
    if not caps.matrix_units:
        return MatrixCut(tile=EMULATED_TILE)
    fitting = [t for t in TILES if is_legal(t, caps)]
    processors = max(caps.invocations // 1024, 1)

    def groups(tile: MatrixTile) -> int:
        return matrices * ceil_div(rows, tile.m) * ceil_div(shape.n * shape.parts, tile.n)

    frugal = [t for t in fitting if rows > t.m // 2] or fitting[-1:]
    few = frugal[-1] if rows > _SPLIT_ROWS else frugal[0]
    tile = next((t for t in frugal if groups(t) >= processors * 3 // 4), few)
    splits = 1
    if may_split and rows <= _SPLIT_ROWS:
        steps = ceil_div(shape.k, tile.k)
        splits = max(1, min(ceil_div(2 * processors, groups(tile)), steps // _LEAST_STEPS, _MOST_SPLITS))
    return MatrixCut(tile=tile, splits=splits)


def candidates(shape: MatmulShape, rows: int, caps: Caps) -> list[MatrixCut]:
    """Cuts worth trying for `rows` rows: tiles that waste at most half of their rows, split as far as sums allow."""
    cuts = []
    for tile in (*TILES, *_MORE_TILES):
        if tile.m < 2 * rows and rows <= 8 * tile.m and is_legal(tile, caps):
            most = min(ceil_div(shape.k, tile.k) // _LEAST_STEPS, _MOST_SPLITS) if rows <= _SPLIT_ROWS else 1
            cuts += [MatrixCut(tile=tile, splits=splits) for splits in (1, 2, 4, 8) if splits <= max(most, 1)]
    return cuts


def is_legal(tile: MatrixTile, caps: Caps) -> bool:
    """Whether the kernel can run with a tile on this GPU."""
    if min(tile.m, tile.n, tile.k, tile.rows, tile.columns, tile.slices) <= 0:
        return False
    if tile.ahead not in (1, 2) or tile.rows * tile.columns > _MOST_SUMS:
        return False
    if any((tile.m % tile.rows, tile.n % tile.columns, tile.rows % 16, tile.columns % 32, tile.k % (32 * tile.slices))):
        return False
    return tile.workgroup <= caps.max_workgroup and tile.staged(caps.max_shared) is not None


def takes(weights: WeightFormat) -> bool:
    """Whether matrix units take weights of this format: float32 would lose digits."""
    return weights is not FORMATS["float32"]


def halved_stride(k: int) -> int:
    """Halves of a row of x."""
    return _ROW_UNIT * ceil_div(k, _ROW_UNIT)


def halve_rows(shape: MatmulShape, *, times: int = 1, keep: bool = False) -> Dispatch:
    """Rows of x after the norm as halves, and what each must be multiplied by; `times` rows for each row of the call.

    Buffers: x, norm_params, halved, undo, ctl; with `keep` y, the rows after the norm as float32.
    """
    names = ("K", "NORM", "EPS", "NORM_UNIT", "HAS_NORM_WEIGHT", "HAS_NORM_BIAS")
    constants = shape.constants()
    return Dispatch(
        kernel="halve_rows",
        grid=WorkgroupGrid(x=1, rows_each=1, times=times),
        constants={"WG": 256 if shape.k > 1024 else 128, "STRIDE": halved_stride(shape.k), "TIMES": times, "KEEP": keep}
        | {name: constants[name] for name in names},
    )


def matrix_gemm(
    shape: MatmulShape,
    caps: Caps,
    cut: MatrixCut,
    *,
    first: int,
    units: int,
    rows: int = 0,
    guard: RowPredicate = NONE,
    stack: MatrixStack = ONE,
) -> Dispatch:
    """Many rows times the rows of a shard: outputs `first` … `first + units`; `first` is a multiple of 4.

    Buffers: x and undo (of `halve_rows`), weights, scales, bias, residual, ctl; those of the predicate and of the
    stack; y, or with splits their partial sums, room for `rows` each.
    """
    tile, halves = cut.tile, shape.format is FORMATS["float16"]
    constants = shape.constants() | {
        "FIRST": first,
        "UNITS": units,
        "WG": tile.workgroup,
        "LANES": MATRIX_LANES,
        "BM": tile.m,
        "BATCH": tile.m,
        "BN": tile.n,
        "BK": tile.k,
        "WM": tile.rows,
        "WN": tile.columns,
        "AHEAD": tile.ahead,
        "SLICES": tile.slices,
        "STAGED": tile.staged(caps.max_shared),
        "X_STRIDE": halved_stride(shape.k),
        "SPLITS": cut.splits,
        "ROWS": rows,
        **guard.over(tile.m),
        **stack.constants,
    }
    groups = ceil_div(units * shape.parts, tile.n)
    grid = WorkgroupGrid(x=groups, rows_each=tile.m, z=cut.splits)
    return Dispatch(
        kernel="matrix_gemm",
        grid=stack.grid(groups, tile.m) or grid,
        constants=constants,
        preludes=(
            *shape.format.preludes,
            "matrix/units" if caps.matrix_units else "matrix/emulated",
            "tile/bits" if halves else "tile/rounded",
            *_finish(shape),
            *stack.preludes("batch/many"),
            "finish",
            guard.prelude,
        ),
    )


def join_splits(shape: MatmulShape, cut: MatrixCut, *, first: int, units: int, rows: int) -> Dispatch:
    """Sums of partial products, and what follows them. Buffers: splits, bias, residual, y, ctl."""
    workgroup = 128
    return Dispatch(
        kernel="join_splits",
        grid=WorkgroupGrid(x=ceil_div(units, 4 * workgroup), rows_each=1),
        constants=shape.constants()
        | {"WG": workgroup, "FIRST": first, "UNITS": units, "SPLITS": cut.splits, "ROWS": rows},
        preludes=(*_finish(shape), "stack/one", "finish"),
    )


def partial_bytes(shape: MatmulShape, cut: MatrixCut, rows: int) -> int:
    """Bytes of the partial sums of `rows` rows."""
    return 16 * cut.splits * rows * shape.parts * ceil_div(shape.n, 4)


def _finish(shape: MatmulShape) -> tuple[str, ...]:
    return (f"unary/{shape.activation}", "bounded")
