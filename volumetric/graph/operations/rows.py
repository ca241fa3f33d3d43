"""Operations on rows: lookups, softmax and its sparse variants, the selection of the largest elements.

``gather_rows``   table [V,D], ids int32 [n] → [n,D]. Ids are checked on the host before a run.
``scatter_rows``  g [n,D], ids int32 [n] → [``rows``,D]: each row sums the g of its id, in the order of ids.
``softmax``       x [R,W] → y, by row; all -inf: zeros; NaN or +inf in a row: the whole row NaN.
``softmax_grad``  y, g → ``y (g − Σ y g)``.
``entmax``        x [R,W] → y. ``alpha`` in (1, 2]: `entmax` below; 2 is sparsemax, exactly. -inf, NaN: as softmax.
``entmax_grad``   y, g → ``s (g − Σ s g / Σ s)``, ``s = y^(2−alpha)`` where y > 0, NaN where y is, else 0; Σ s = 0
                  counts as 1. ``alpha``.
``keep_largest``  x [R,W] → x if it is among the ``k`` largest of its row (the first of equal elements wins), else
                  -inf; NaN stays, and ranks below everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.keep_largest import keep_largest
from volumetric.graph.numeric.softmax import softmax, softmax_vjp, subtract_max
from volumetric.graph.operations.operation import Attrs, Infer, axes_of, declare, float_output, require, require_floats
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

Found = list["int | None"]
_HALVINGS = 64
"""Bisections that shrink an interval of length 1 below the distance of neighbouring float64 numbers."""


def sparsemax(x: Array) -> Array:
    """Return the nearest point of the simplex, exactly: ``max(x - τ, 0)`` with the τ that makes the last axis sum to 1.

    Martins & Astudillo 2016 (arXiv 1602.02068), algorithm 1. Rows that are all -inf become zeros.
    """
    z = subtract_max(x.astype(np.float64, copy=False))
    falling = -np.sort(-z, axis=-1)
    total = falling.cumsum(axis=-1)
    inside = 1 + np.arange(1, z.shape[-1] + 1) * falling > total
    size = inside.sum(axis=-1, keepdims=True)
    inside_total = np.take_along_axis(total, np.maximum(size - 1, 0), axis=-1)
    threshold = np.where(size == 0, 0, (inside_total - 1) / np.maximum(size, 1))
    return np.maximum(z - threshold, 0).astype(x.dtype, copy=False)


def entmax(x: Array, alpha: float) -> Array:
    """α-entmax over the last axis, ``max((α - 1) x - τ, 0)^(1 / (α - 1))`` with the τ that makes it sum to 1.

    τ is computed by bisection down to the last bit of float64 (Blondel, Martins & Niculae 2019, arXiv 1901.02324;
    Peters et al. 2019, arXiv 1905.05702). Rows that are all -inf become zeros.
    """
    z = (alpha - 1) * subtract_max(x.astype(np.float64, copy=False))
    power = 1 / (alpha - 1)
    low = np.full_like(z[..., :1], -1.0)  # the largest logit alone gives a sum of 1 or more
    high = np.full_like(low, -(z.shape[-1] ** (1 - alpha)))  # a row of equal logits gives a sum of at most 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = (np.maximum(z - middle, 0) ** power).sum(axis=-1, keepdims=True) >= 1
        low, high = np.where(enough, middle, low), np.where(enough, high, middle)
    y = np.maximum(z - low, 0) ** power
    total = y.sum(axis=-1, keepdims=True)
    return (y / np.where(total == 0, 1, total)).astype(x.dtype, copy=False)


def entmax_vjp(y: Array, gy: Array, alpha: float) -> Array:
    """Return the gradient of the input of `entmax` (or, with α = 2, of `sparsemax`) from its output.

    ``s ⊙ (gy - Σ s gy / Σ s)`` with ``s = y^(2 - α)`` where y is above 0, and 0 elsewhere; NaN stays.
    """
    s = np.where((y == 0) | np.isnan(y), y, y ** y.dtype.type(2 - alpha))  # NaN to the power of 0 would be 1
    total = s.sum(axis=-1, keepdims=True)
    return s * (gy - (s * gy).sum(axis=-1, keepdims=True) / np.where(total == 0, 1, total))


def _infer_gather(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    table, ids = inputs
    require_floats("gather_rows", [table])
    require(ids.dtype == "int32", "gather_rows", "ids must be int32")
    (count,), (_, width) = axes_of("gather_rows", ids, 1), axes_of("gather_rows", table, 2)
    return [float_output("rows", count, width)]


def _vjp_gather(work: GraphBuilder, node: Node, g: int) -> Found:
    table, ids = node.inputs
    return [work.scatter_rows(g, ids, work.shape(table)[0]), None]


def _infer_scatter(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    g, ids = inputs
    require_floats("scatter_rows", [g])
    require(ids.dtype == "int32", "scatter_rows", "ids must be int32")
    (count,), (rows, width) = axes_of("scatter_rows", ids, 1), axes_of("scatter_rows", g, 2)
    require(rows == count, "scatter_rows", f"got {rows} rows but {count} ids")
    return [float_output("table", attrs["rows"], width)]


def _run_scatter(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    g, ids = inputs
    table = np.zeros((attrs["rows"], g.shape[1]), g.dtype)
    np.add.at(table, ids, g)
    return [table]


def _vjp_scatter(work: GraphBuilder, node: Node, g: int) -> Found:
    return [work.gather_rows(g, node.inputs[1]), None]


def _rows_of(op: str) -> Infer:
    """Return the shape rule of an operation whose rows keep their width."""

    def infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
        require_floats(op, inputs)
        shape = axes_of(op, inputs[0], 2)
        require(all(t.shape == shape for t in inputs), op, "all inputs need one shape")
        require(shape[1], op, "rows are empty")
        if "alpha" in attrs and not 1 < attrs["alpha"] <= 2:
            raise SpecError(f"{op}: alpha must be above 1 and at most 2, got {attrs['alpha']}")
        if "k" in attrs and not 1 <= attrs["k"] <= shape[1]:
            raise SpecError(f"{op}: k must be 1 … {shape[1]}, got {attrs['k']}")
        return [float_output(op, *shape)]

    return infer


def _vjp_softmax(work: GraphBuilder, node: Node, g: int) -> Found:
    return [work.softmax_grad(node.outputs[0], g)]


def _vjp_entmax(work: GraphBuilder, node: Node, g: int) -> Found:
    return [work.entmax_grad(node.outputs[0], g, node.attrs["alpha"])]


def _vjp_keep(work: GraphBuilder, node: Node, g: int) -> Found:
    # Not ``y > -inf``, which is false for NaN.
    dropped = work.binary("greater", work.scalar(float(np.finfo(np.float32).min)), node.outputs[0])
    return [work.binary("mul_nonzero", g, work.affine(work.reshape(dropped, work.shape(g)), -1.0, 1.0))]


def _run_entmax(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [sparsemax(inputs[0]) if attrs["alpha"] == 2 else entmax(inputs[0], attrs["alpha"])]


declare("gather_rows", _infer_gather, lambda inputs, attrs: [inputs[0][inputs[1]]], _vjp_gather)
declare("scatter_rows", _infer_scatter, _run_scatter, _vjp_scatter)
declare("softmax", _rows_of("softmax"), lambda inputs, attrs: [softmax(inputs[0])], _vjp_softmax)
declare("softmax_grad", _rows_of("softmax_grad"), lambda inputs, attrs: [softmax_vjp(*inputs)])
declare("entmax", _rows_of("entmax"), _run_entmax, _vjp_entmax)
declare(
    "entmax_grad",
    _rows_of("entmax_grad"),
    lambda inputs, attrs: [entmax_vjp(inputs[0], inputs[1], attrs["alpha"])],
)
declare(
    "keep_largest",
    _rows_of("keep_largest"),
    lambda inputs, attrs: [keep_largest(inputs[0], attrs["k"])],
    _vjp_keep,
)
