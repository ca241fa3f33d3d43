"""Products of groups of matrices: the choice of tile, and of the number of workgroups that share a sum."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import Caps, Constant
from volumetric.devices.gpu.kernels.graph import few_rows, matrix_gemm
from volumetric.devices.gpu.kernels.graph.gemm_launches import GemmKernel, product_launches
from volumetric.devices.gpu.kernels.graph.grouped_gemm import GroupedGemm, GroupedGemmTile, product_of
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweredNode, LoweringRequest

TILES = (
    GroupedGemmTile(m=128, n=128, k=16, rows=8, columns=8),
    GroupedGemmTile(m=64, n=64, k=32, rows=8, columns=4),
    GroupedGemmTile(m=32, n=64, k=32, rows=4, columns=4),
    GroupedGemmTile(m=64, n=32, k=32, rows=4, columns=4),
    GroupedGemmTile(m=16, n=64, k=32, rows=4, columns=4),
    GroupedGemmTile(m=64, n=16, k=32, rows=4, columns=4),
    GroupedGemmTile(m=16, n=16, k=32, rows=4, columns=4),
)
"""From the most arithmetic for each byte to the most workgroups."""
SHORT = GroupedGemmTile(m=16, n=16, k=4, rows=4, columns=4)
"""The tile with the shortest code: SwiftShader compiles it in 0.2 s, and the smallest of the others in minutes."""
_SPLITS = 64
_PARTIAL_BYTES = 64 << 20
"""Bytes of partial products."""
_SPLIT_STEPS = 4
"""Minimum tiles of k per workgroup when a sum is split."""
_FEW = 2
"""Steps to unroll up to which an adapter compiles slowly."""


def choose_tile(product: GroupedGemm, caps: Caps) -> GroupedGemmTile:
    """Largest tile that wastes little and, with long sums split, leaves work for the whole device."""
    if caps.unroll == 1:
        return SHORT
    fitting = [t for t in TILES if t.workgroup <= caps.max_workgroup and t.shared <= caps.max_shared]
    least = min(product.waste(t) for t in fitting)
    frugal = [t for t in fitting if product.waste(t) <= 1.3 * least]
    enough = caps.invocations // 1024
    for tile in frugal:
        if product.tiles(tile) * _possible_splits(product, tile) >= enough:
            return tile
    return max(frugal, key=lambda t: product.tiles(t) * _possible_splits(product, t))


def _possible_splits(product: GroupedGemm, tile: GroupedGemmTile) -> int:
    return max(1, min(product.steps(tile) // _SPLIT_STEPS, _SPLITS))


def splits_of(product: GroupedGemm, tile: GroupedGemmTile, caps: Caps) -> int:
    """Workgroups that share a sum, so that there are about two for each processor; 1 if there already are."""
    splits = caps.invocations // 512 // max(product.tiles(tile), 1)
    room = min(_PARTIAL_BYTES, caps.max_binding) // max(4 * product.m * product.n * product.groups, 1)
    return max(1, min(splits, room, _possible_splits(product, tile)))


def gemm(request: LoweringRequest) -> LoweredNode:
    """Products of groups with bias and activation."""
    product, caps = product_of(request), request.caps
    if few_rows.supports_few_rows(product, request.attrs):
        return few_rows.plain_left_sides(request)
    if matrix_gemm.takes(product, request):
        return matrix_gemm.matrix_gemm(product, request)
    tile = choose_tile(product, caps)
    # On a driver that ends loops, a workgroup takes no more tiles of k than it may run rounds for.
    fetches = (tile.m + tile.n) * tile.k // 4 // tile.workgroup if _loops(request) else 0
    splits = max(
        splits_of(product, tile, caps),
        caps.launches_needed(2 + fetches + tile.k // min(tile.k, caps.unroll), product.steps(tile)),
    )
    return lower_product(product, tile, splits, request)


def _loops(request: LoweringRequest) -> bool:
    """Whether a tile's operands are fetched in loops: gathers of windows, on adapters that compile slowly."""
    return "windows" in request.attrs and request.caps.unroll <= _FEW


def lower_product(product: GroupedGemm, tile: GroupedGemmTile, splits: int, request: LoweringRequest) -> LoweredNode:
    """Return the launches of a product with this tile and this number of splits."""
    constants: dict[str, Constant] = {
        "BM": tile.m,
        "BN": tile.n,
        "BK": tile.k,
        "TM": tile.rows,
        "TN": tile.columns,
        "KU": min(tile.k, request.caps.unroll),
        "LOOPS": _loops(request),
    }
    windows = "windows" if "windows" in request.attrs else "matrix"
    kernel = GemmKernel(
        name="gemm",
        constants=constants,
        preludes=(f"graph/operand/{windows}",),
        workgroup=tile.workgroup,
        m=tile.m,
        n=tile.n,
        k=tile.k,
    )
    return product_launches(kernel, product, splits, request)
