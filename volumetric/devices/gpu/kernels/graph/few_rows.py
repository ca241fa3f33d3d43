"""Products of groups of few rows each, whose cost is reading the right side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.kernels.graph.grouped_gemm import GroupedGemm, product_of, sizes_of
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    BufferRef,
    LoweredNode,
    LoweringRequest,
    launch,
    result,
    single_launch,
    source,
)
from volumetric.graph.strides import pad_to

_NEVER = (1 << 32) - 1
"""First group of unused parts."""
ROWS = 8
"""Maximum rows of a group."""
PARTS = 8
"""Maximum parts of the left side."""
TENSORS = 3
"""Maximum tensors that contain them."""
_LANES = 16
_LONGEST = 4096
"""Rows of the right side beyond which a sum is better split among workgroups."""


def supports_few_rows(product: GroupedGemm, attrs: Mapping[str, Any]) -> bool:
    """Whether the kernel supports a product, and is the fastest for it."""
    across = product.k if attrs["trans_b"] else product.n
    fits = not attrs["trans_a"] and "windows" not in attrs and product.sums == 1 and across % 4 == 0
    return fits and product.groups > 1 and product.m <= ROWS and 0 < product.k <= _LONGEST


def gemm_of_parts(request: LoweringRequest) -> LoweredNode:
    """Products whose left side consists of parts of tensors: see `fuse_joins`."""
    attrs = request.attrs
    first = 2 if attrs["biased"] else 1
    b, (_, m, _) = request.inputs[0], request.outputs[0]
    product = sizes_of((attrs["a_groups"], m, b[2 if attrs["trans_b"] else 1]), b, request.outputs[0], attrs)
    sources = [source(i) for i in range(first, len(request.inputs))]
    return few_rows(request, product, sources, attrs["parts"], source(0), 1 if attrs["biased"] else None)


def few_rows(
    request: LoweringRequest,
    product: GroupedGemm,
    sources: list[BufferRef],
    parts: tuple[tuple[int, int, int], ...],
    right: BufferRef,
    bias: int | None,
) -> LoweredNode:
    """Return the launch of a product.

    Parameters
    ----------
    sources : tensors of the left side
    parts : index of the tensor, the first element, and groups, of consecutive parts
    right : the right side
    bias : index of the added input
    """
    workgroup = min(256, request.caps.max_workgroup)
    trans_b = bool(request.attrs["trans_b"])
    across = ceil_div(product.n, 4 * (workgroup // _LANES if trans_b else _LANES))
    total = across * product.groups
    places: list[int] = []
    group = 0
    for tensor, start, count in parts:
        places += [group, tensor, start, 0]
        group += count
    buffers = {f"a_{i}": one for i, one in enumerate(sources)} | {"b": right, "c": result()}
    per_bias = 0
    if bias is not None:
        buffers["bias"] = source(bias)
        per_bias = product.n if len(request.inputs[bias]) == 2 else 0
    dims = (product.n, product.k, product.a_groups, max(product.b_groups, 1), across, total, per_bias, 0)
    return single_launch(
        launch(
            "few_rows",
            total,
            buffers,
            (*dims, *pad_to(places, 4 * PARTS, _NEVER)),
            constants={"ROWS": product.m, "LANES": _LANES, "TRANS_B": trans_b, "BIAS": bias is not None},
            preludes=(f"unary/{request.attrs['activation']}",),
            workgroup=workgroup,
        )
    )


def plain_left_sides(request: LoweringRequest) -> LoweredNode:
    """Products whose left side is a whole tensor."""
    product = product_of(request)
    bias = 2 if len(request.inputs) > 2 else None
    return few_rows(request, product, [source(0)], ((0, 0, product.a_groups),), source(1), bias)
