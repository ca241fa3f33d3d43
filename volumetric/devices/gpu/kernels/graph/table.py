"""The operations of tensor graphs with GPU kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from volumetric.base._typing import Shape
from volumetric.base.registry import Registry
from volumetric.devices.gpu.kernels.dispatch import Caps
from volumetric.devices.gpu.kernels.graph import (
    cells,
    crossing,
    edges,
    elementwise,
    few_rows,
    formulas,
    gemm,
    moving,
    quantise,
    recurrent,
    reduce,
    rows,
    scans,
    scatter,
    training,
    windows,
)
from volumetric.devices.gpu.kernels.graph.launch import Lowered, Lowerer, Request, unsupported
from volumetric.graph.operations.base import kernels_for

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
    "permute": moving.permute,
    "turn_taps": moving.turn_taps,
    "slice": moving.slice_,
    "flip": moving.flip,
    "pad": moving.pad,
    "concat": moving.concat,
    "broadcast": moving.broadcast,
    "reduce": reduce.reduce,
    "assign": moving.assign,
    "gather_rows": moving.gather_rows,
    "scatter_rows": scatter.scatter_rows,
    "sum_listed": moving.sum_listed,
    "softmax": rows.softmax,
    "softmax_grad": rows.softmax_grad,
    "entmax": rows.entmax,
    "entmax_grad": rows.entmax_grad,
    "keep_largest": rows.keep_largest,
    "norm": rows.norm,
    "norm_grad": rows.norm_grad,
    "norm_param_grad": rows.norm_param_grad,
    "unfold": windows.unfold,
    "fold": windows.fold,
    "pool_max": windows.pool_max,
    "pool_max_grad": windows.pool_max_grad,
    "pool_sum": windows.pool_sum,
    "pool_spread": windows.pool_spread,
    "rope": moving.rope,
    "linear_scan": scans.linear_scan,
    "rotate_scan": scans.rotate_scan,
    "cross_attend": crossing.cross_attend,
    "weigh_rows": moving.weigh_rows,
    "edge_attend": edges.edge_attend,
    "edge_attend_grad": edges.edge_attend_grad,
    "cell": cells.cell,
    "cell_grad": cells.cell_grad,
    "recurrent": recurrent.recurrent,
    "recurrent_grad": recurrent.recurrent_grad,
    "loss": training.loss,
    "update": training.update,
    "update_squares": training.update_squares,
    "sumsq": reduce.sumsq,
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
    }
    | {"gather_rows", "weigh_rows", "softmax", "entmax", "keep_largest", "norm", "cross_attend"}
)
"""Operations whose launches all check in each workgroup whether their part of the first result is read."""


def has_kernel(op: str, inputs: Sequence[Shape], attrs: Mapping[str, Any], caps: Caps) -> bool:
    """Whether an operation that could be expanded into others has a kernel."""
    if op == "cross_attend":
        return not attrs["known"] and crossing.takes(inputs, attrs["heads"], caps)
    return op in LOWERERS


def lower(request: Request) -> Lowered:
    """Return the launches of an operation; none if it writes nothing.

    Raises
    ------
    UnsupportedError : no kernel for the operation, or for these attributes
    """
    if request.op not in LOWERERS:
        raise unsupported(request.op, "it")
    if all(0 in shape for shape in request.outputs):
        return Lowered(launches=())
    return LOWERERS[request.op](request)
