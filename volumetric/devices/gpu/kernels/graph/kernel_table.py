"""The operations of tensor graphs with GPU kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from volumetric.base._typing import Shape
from volumetric.base.registry import Registry
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.graph import (
    cells,
    cross_attention,
    depthwise,
    edge_attention,
    elementwise,
    few_rows,
    formula_reduction,
    formulas,
    gemm,
    many_arrays,
    quantise,
    recurrent,
    reduce,
    row_kernels,
    scans,
    scatter,
    strided_copies,
    training,
    windows,
)
from volumetric.devices.gpu.kernels.graph.kernel_launch import LoweredNode, Lowerer, LoweringRequest, unsupported
from volumetric.graph.operations.operation import kernels_for

_OWN: Mapping[str, Lowerer] = {
    "gemm": gemm.gemm,
    "gemm_of_parts": few_rows.gemm_of_parts,
    "formula": formulas.formula,
    "unary": elementwise.unary,
    "unary_grad": elementwise.unary_grad,
    "binary": elementwise.binary,
    "dropout": elementwise.dropout,
    "gumbel": elementwise.gumbel,
    "normal": elementwise.normal,
    "permute": strided_copies.permute,
    "turn_taps": strided_copies.turn_taps,
    "slice": strided_copies.slice_,
    "flip": strided_copies.flip,
    "pad": strided_copies.pad,
    "concat": strided_copies.concat,
    "broadcast": strided_copies.broadcast,
    "reduce": reduce.reduce,
    "reduce_formula": formula_reduction.reduce_formula,
    "assign": strided_copies.assign,
    "gather_rows": strided_copies.gather_rows,
    "scatter_rows": scatter.scatter_rows,
    "sum_listed": strided_copies.sum_listed,
    "softmax": row_kernels.softmax,
    "softmax_grad": row_kernels.softmax_grad,
    "entmax": row_kernels.entmax,
    "entmax_grad": row_kernels.entmax_grad,
    "keep_largest": row_kernels.keep_largest,
    "norm": row_kernels.norm,
    "norm_grad": row_kernels.norm_grad,
    "norm_param_grad": row_kernels.norm_param_grad,
    "unfold": windows.unfold,
    "fold": windows.fold,
    "pool_max": windows.pool_max,
    "pool_max_grad": windows.pool_max_grad,
    "pool_sum": windows.pool_sum,
    "pool_spread": windows.pool_spread,
    "rope": strided_copies.rope,
    "linear_scan": scans.linear_scan,
    "rotate_scan": scans.rotate_scan,
    "cross_attend": cross_attention.cross_attend,
    "weigh_rows": strided_copies.weigh_rows,
    "edge_attend": edge_attention.edge_attend,
    "edge_attend_grad": edge_attention.edge_attend_grad,
    "depthwise_conv": depthwise.depthwise_conv,
    "depthwise_conv_grad": depthwise.depthwise_conv_grad,
    "cell": cells.cell,
    "cell_grad": cells.cell_grad,
    "recurrent": recurrent.recurrent,
    "recurrent_grad": recurrent.recurrent_grad,
    "loss": training.loss,
    "update": training.update,
    "update_squares": many_arrays.update_squares,
    "update_many": many_arrays.update_many,
    "sumsq": many_arrays.sumsq,
    "fake_quant": quantise.fake_quant,
}

LOWERERS: Registry[Lowerer] = Registry(kernels_for("gpu"), own=_OWN)
"""Operation → function that returns its launches; packages register those of their operations."""

GUARDED = frozenset(
    {
        "gemm",
        "gemm_of_parts",
        "formula",
        "unary",
        "unary_grad",
        "binary",
        "permute",
        "slice",
        "pad",
        "concat",
        "broadcast",
        "reduce",
        "reduce_formula",
    }
    | {"gather_rows", "weigh_rows", "softmax", "entmax", "keep_largest", "norm", "cross_attend", "depthwise_conv"}
)
"""Operations whose launches all check in each workgroup whether their part of the first result is read."""


def has_kernel(op: str, inputs: Sequence[Shape], attrs: Mapping[str, Any], caps: Caps) -> bool:
    """Whether an operation that could be expanded into others has a kernel."""
    if op == "cross_attend":
        return not attrs["known"] and cross_attention.supports_cross_attend(inputs, attrs["heads"], caps)
    if op in ("depthwise_conv", "depthwise_conv_grad"):
        return depthwise.supports_taps(inputs[1 if op == "depthwise_conv" else 2])
    return op in LOWERERS


def lower(request: LoweringRequest) -> LoweredNode:
    """Return the launches of an operation; none if it writes nothing.

    Raises
    ------
    UnsupportedError : no kernel for the operation, or for these attributes
    """
    if request.op not in LOWERERS:
        raise unsupported(request.op, "it")
    if all(0 in shape for shape in request.outputs):
        return LoweredNode(launches=())
    return LOWERERS[request.op](request)
