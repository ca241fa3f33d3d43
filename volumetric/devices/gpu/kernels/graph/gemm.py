"""Products of groups of matrices: the choice of tile, and of the number of workgroups that share a sum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.devices.gpu.kernels.dispatch import Caps, Constant, ceil_div
from volumetric.devices.gpu.kernels.graph import few_rows
from volumetric.devices.gpu.kernels.graph.grouped_gemm import GroupedGemm, GroupedGemmTile, product_of
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    KernelLaunch,
    LoweredNode,
    LoweringRequest,
    launch,
    one_each,
    result,
    scratch,
    single_launch,
    source,
)

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
_SPLITS = 64
_PARTIAL_BYTES = 64 << 20
"""Bytes of partial products."""
_WORD = 1 << 32
"""Windows may begin inside of an image: this negative margin wraps around, as the shader's numbers do."""
_SPLIT_STEPS = 4
"""Minimum tiles of k per workgroup when a sum is split."""


def choose_tile(product: GroupedGemm, caps: Caps) -> GroupedGemmTile:
    """Largest tile that wastes little and, with long sums split, leaves work for the whole device."""
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
    tile = choose_tile(product, caps)
    # On a driver that ends loops, a workgroup takes no more tiles of k than it may run rounds for.
    splits = max(
        splits_of(product, tile, caps),
        caps.launches_needed(2 + tile.k // min(tile.k, caps.unroll), product.steps(tile)),
    )
    return lower_product(product, tile, splits, request)


def window_constants(windows: Mapping[str, Any]) -> dict[str, Constant]:
    """Constants of a right side that consists of windows of images, for 3 spatial axes."""
    fields = {"KERNEL": "kernel", "STRIDE": "stride", "DILATION": "dilation", "BEFORE": "before"}
    constants: dict[str, Constant] = {}
    for name, field in {**fields, "COUNT": "counts", "SIZE": "sizes"}.items():
        missing = [0 if field == "before" else 1] * (3 - len(windows[field]))
        constants |= {f"{name}_{axis}": int(n) % _WORD for axis, n in enumerate((*missing, *windows[field]))}
    return constants


def lower_product(product: GroupedGemm, tile: GroupedGemmTile, splits: int, request: LoweringRequest) -> LoweredNode:
    """Return the launches of a product with this tile and this number of splits."""
    bias, caps, attrs = len(request.inputs) > 2, request.caps, request.attrs
    shift: dict[str, BufferRef] = {"bias": source(2)} if bias else {}
    biases = bias and len(request.inputs[2]) == 2  # one for each group
    chunk = ceil_div(product.steps(tile), splits)
    splits = max(1, ceil_div(product.steps(tile), chunk)) if chunk else 1
    constants: dict[str, Constant] = {
        "BM": tile.m,
        "BN": tile.n,
        "BK": tile.k,
        "TM": tile.rows,
        "TN": tile.columns,
        "KU": min(tile.k, caps.unroll),
        "TRANS_A": bool(attrs["trans_a"]),
        "TRANS_B": bool(attrs["trans_b"]),
    }
    windows = window_constants(attrs["windows"]) if "windows" in attrs else {}
    constants |= windows

    def first(target: BufferRef, kind: str, extra: dict[str, BufferRef]) -> KernelLaunch:
        across, down = ceil_div(product.n, tile.n), ceil_div(product.m, tile.m)
        total = across * down * product.groups * splits
        dims = (product.m, product.n, product.k, product.groups, max(product.a_groups, 1), max(product.b_groups, 1))
        return launch(
            "gemm",
            total,
            {"a": source(0), "b": source(1), "c": target, **extra},
            (*dims, product.sums, across, down, chunk, total, splits),
            constants=constants | {"BIAS": bool(extra), "BIASES": bool(extra) and biases},
            preludes=(f"unary/{kind}", f"graph/operand/{'windows' if windows else 'matrix'}"),
            workgroup=tile.workgroup,
        )

    if splits == 1:
        return single_launch(first(result(), attrs["activation"], shift))
    count = request.out_size
    second = one_each(
        "gemm_join",
        count,
        caps,
        {"parts": scratch(0), "c": result(), **shift},
        (count, product.n, splits, product.m * product.n if biases else count),
        constants={"BIAS": bias},
        preludes=(f"unary/{attrs['activation']}",),
    )
    return LoweredNode(launches=(first(scratch(0), "linear", {}), second), scratch=(4 * splits * count,))
