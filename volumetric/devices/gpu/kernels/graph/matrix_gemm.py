"""Products of groups on matrix units: sides are rounded to float16 on their way to workgroup memory, sums are float32.

A GPU without matrix units runs the same kernel with emulated fragments.
"""

from __future__ import annotations

from dataclasses import replace

from volumetric.devices.gpu.kernels.dispatch import MATRIX_LANES, Caps, ceil_div
from volumetric.devices.gpu.kernels.graph.gemm_launches import GemmKernel, product_launches
from volumetric.devices.gpu.kernels.graph.grouped_gemm import GroupedGemm
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    LoweredNode,
    LoweringRequest,
    launch,
    scratch,
    source,
    workgroup_size,
)
from volumetric.devices.gpu.kernels.matrix_tiles import TILES, MatrixTile

EMULATED_TILE = MatrixTile(m=32, n=32, k=16, rows=16, columns=16)
"""Without matrix units: short straight-line code, because software adapters take seconds to compile more of it."""
_PADDING = 2
"""Vectors by which a row of a tile is longer."""
LEAST = 16
"""Least rows, columns and depth: below it, most of a fragment would be padding."""
_WASTE = 1.5
"""Computed elements per useful one, over the least of all tiles, from which on a smaller tile is taken."""
_SPLITS = 32
_SPLIT_STEPS = 4
"""Least steps of a workgroup when a sum is split."""
_PARTIAL_BYTES = 64 << 20
_LEAST_SCALED = 1 << 28
"""Products, of one number by one, that are worth two launches more, which find the largest magnitude of each side."""
_TOPS = 64
"""Parts of a side whose largest magnitudes are found apart."""
_EMULATED_ROUNDS = 40
"""Loop rounds of an emulated step at most."""


def takes(product: GroupedGemm, request: LoweringRequest) -> bool:
    """Whether matrix units take a product of these sizes."""
    if request.products == "float32" or min(product.m, product.n, product.k * product.sums) < LEAST:
        return False
    work = product.m * product.n * product.k * product.groups * product.sums
    return request.products == "float16" or not request.caps.matrix_units or work >= _LEAST_SCALED


def matrix_gemm(product: GroupedGemm, request: LoweringRequest) -> LoweredNode:
    """Products of groups with bias and activation."""
    tile = choose_tile(product, request)
    return lower_matrix_product(product, tile, splits_of(product, tile, request.caps), request)


def choose_tile(product: GroupedGemm, request: LoweringRequest) -> MatrixTile:
    """Largest tile that wastes little and, with long sums split, leaves work for the whole device."""
    caps = request.caps
    if not caps.matrix_units:
        return EMULATED_TILE
    fitting = [t for t in TILES if t.workgroup <= caps.max_workgroup and staged(t, request)]
    least = min(_computed(product, t) for t in fitting)
    frugal = [t for t in fitting if _computed(product, t) <= _WASTE * least]
    enough = caps.invocations // 1024 * 3 // 4
    for tile in frugal:
        if _tiles(product, tile) * _possible_splits(product, tile) >= enough:
            return tile
    return max(frugal, key=lambda t: _tiles(product, t) * _possible_splits(product, t))


def splits_of(product: GroupedGemm, tile: MatrixTile, caps: Caps) -> int:
    """Workgroups that share a sum, so that there is about one for each processor; 1 if there already are."""
    most = _possible_splits(product, tile)
    splits = caps.invocations // 1024 // max(_tiles(product, tile), 1)
    room = min(_PARTIAL_BYTES, caps.max_binding) // max(4 * product.m * product.n * product.groups, 1)
    # On a driver that ends loops, a workgroup takes no more steps than it may run rounds for.
    return max(1, min(splits, room, most), caps.launches_needed(_EMULATED_ROUNDS, _steps(product, tile)))


def lower_matrix_product(product: GroupedGemm, tile: MatrixTile, splits: int, request: LoweringRequest) -> LoweredNode:
    """Return the launches of a product with this tile and this number of splits."""
    attrs, units, scaled = request.attrs, request.caps.matrix_units, request.products == "scaled float16"
    trans_a, trans_b, windows = bool(attrs["trans_a"]), bool(attrs["trans_b"]), "windows" in attrs
    (a_rows, a_wide), (b_rows, b_wide) = _sides(tile, request)
    a_vectors = (product.m if trans_a else product.k) % 4 == 0
    b_vectors = (product.k if trans_b else product.n) % 4 == 0 and not windows
    right = ("right_vectors",) if b_vectors else ("right_numbers",)
    sides = (
        f"left_{'turned' if trans_a else 'rows'}",
        f"right_{'rows' if trans_b else 'turned'}",
        f"left_{'vectors' if a_vectors else 'numbers'}",
        *right,
    )
    operand = () if b_vectors else (f"graph/operand/{'windows' if windows else 'matrix'}",)
    kernel = GemmKernel(
        name="matrix_gemm",
        constants={
            "LANES": MATRIX_LANES,
            "BM": tile.m,
            "BN": tile.n,
            "BK": tile.k,
            "WM": tile.rows,
            "WN": tile.columns,
            "STAGED": staged(tile, request),
            "A_ROWS": a_rows,
            "A_WIDE": a_wide,
            "B_ROWS": b_rows,
            "B_WIDE": b_wide,
        },
        preludes=(
            "matrix/units" if units else "matrix/emulated",
            *(f"graph/side/{side}" for side in sides),
            f"graph/side/{'scaled' if scaled else 'plain'}",
            *operand,
        ),
        workgroup=tile.workgroup,
        m=tile.m,
        n=tile.n,
        k=tile.k,
    )
    lowered = product_launches(kernel, product, splits, request)
    return _after_scales(lowered, request) if scaled else lowered


def _after_scales(lowered: LoweredNode, request: LoweringRequest) -> LoweredNode:
    """Put the launches first that find the largest magnitudes of both sides."""
    tops = scratch(len(lowered.scratch))
    size = workgroup_size(request.caps)
    firsts = [
        launch(
            "largest",
            _TOPS,
            {"x": source(side), "tops": tops},
            (request.size(side), ceil_div(request.size(side), _TOPS), side * _TOPS, request.out_size),
            workgroup=size,
        )
        for side in (0, 1)
    ]
    product, *others = lowered.launches
    product = replace(product, buffers={**product.buffers, "tops": tops})
    return LoweredNode(launches=(*firsts, product, *others), scratch=(*lowered.scratch, 8 * _TOPS))


def _sides(tile: MatrixTile, request: LoweringRequest) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows of the tile of each side, and vectors of 4 to a row: as the side lies in memory."""
    left = (tile.k, tile.m // 4) if request.attrs["trans_a"] else (tile.m, tile.k // 4)
    right = (tile.n, tile.k // 4) if request.attrs["trans_b"] else (tile.k, tile.n // 4)
    return left, right


def staged(tile: MatrixTile, request: LoweringRequest) -> int:
    """Subgroups that write their sums to workgroup memory at a time; 0: the tile does not fit."""
    tile_bytes = sum(8 * rows * (wide + _PADDING) for rows, wide in _sides(tile, request))
    return tile.writing(request.caps.max_shared - tile_bytes)


def _tiles(product: GroupedGemm, tile: MatrixTile) -> int:
    return ceil_div(product.m, tile.m) * ceil_div(product.n, tile.n) * product.groups


def _computed(product: GroupedGemm, tile: MatrixTile) -> int:
    return _tiles(product, tile) * tile.m * tile.n


def _steps(product: GroupedGemm, tile: MatrixTile) -> int:
    return ceil_div(product.k, tile.k) * product.sums


def _possible_splits(product: GroupedGemm, tile: MatrixTile) -> int:
    return max(1, min(_steps(product, tile) // _SPLIT_STEPS, _SPLITS))
