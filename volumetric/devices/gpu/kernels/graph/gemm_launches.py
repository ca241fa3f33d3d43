"""Launches of a product of groups by any of its kernels: one, or one for partial products and one that adds them up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from volumetric.devices.gpu.kernels.dispatch import Constant, ceil_div
from volumetric.devices.gpu.kernels.graph.grouped_gemm import GroupedGemm
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

_WORD = 1 << 32
"""Windows may begin inside of an image: this negative margin wraps around, as the shader's numbers do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmKernel:
    """A kernel with bindings and `Dims` of ``graph/gemm``: a workgroup computes m x n dot products in steps of k."""

    name: str
    constants: Mapping[str, Constant]
    preludes: tuple[str, ...]
    workgroup: int
    m: int
    n: int
    k: int


def window_constants(windows: Mapping[str, Any]) -> dict[str, Constant]:
    """Constants of a right side that consists of windows of images, for 3 spatial axes."""
    fields = {"KERNEL": "kernel", "STRIDE": "stride", "DILATION": "dilation", "BEFORE": "before"}
    constants: dict[str, Constant] = {}
    for name, field in {**fields, "COUNT": "counts", "SIZE": "sizes"}.items():
        missing = [0 if field == "before" else 1] * (3 - len(windows[field]))
        constants |= {f"{name}_{axis}": int(n) % _WORD for axis, n in enumerate((*missing, *windows[field]))}
    return constants


def product_launches(kernel: GemmKernel, product: GroupedGemm, splits: int, request: LoweringRequest) -> LoweredNode:
    """Return the launches of a product whose steps are shared among `splits` workgroups."""
    bias, caps, attrs = len(request.inputs) > 2, request.caps, request.attrs
    shift: dict[str, BufferRef] = {"bias": source(2)} if bias else {}
    biases = bias and len(request.inputs[2]) == 2  # one for each group
    steps = ceil_div(product.k, kernel.k) * product.sums
    chunk = ceil_div(steps, splits)
    splits = max(1, ceil_div(steps, chunk)) if chunk else 1
    constants = {**kernel.constants, "TRANS_A": bool(attrs["trans_a"]), "TRANS_B": bool(attrs["trans_b"])}
    if "windows" in attrs:
        constants |= window_constants(attrs["windows"])

    def first(target: BufferRef, kind: str, extra: dict[str, BufferRef]) -> KernelLaunch:
        across, down = ceil_div(product.n, kernel.n), ceil_div(product.m, kernel.m)
        total = across * down * product.groups * splits
        dims = (product.m, product.n, product.k, product.groups, max(product.a_groups, 1), max(product.b_groups, 1))
        return launch(
            kernel.name,
            total,
            {"a": source(0), "b": source(1), "c": target, **extra},
            (*dims, product.sums, across, down, chunk, total, splits),
            constants=constants | {"BIAS": bool(extra), "BIASES": bool(extra) and biases},
            preludes=(f"unary/{kind}", *kernel.preludes),
            workgroup=kernel.workgroup,
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
