"""Weighted sums of a few rows each, of two tables without concatenating them.

``weigh_rows``      near [R,d], far [S,d], ids int32 [n,K], weights [n,K] → y [n,d]: ``y[i] = Σ_k weights[i,k] ·
                    row[ids[i,k]]``; ids from R on index far. Rows with weight 0 are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.graph.operations.operation import (
    Attrs,
    axes_of,
    declare,
    float_output,
    require,
    require_floats,
    vjp_by_recomputing,
)
from volumetric.graph.ops import Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def weigh_rows(work: GraphBuilder, near: int, far: int, ids: int, weights: int) -> int:
    """Emit ``y[i] = Σ_k weights[i, k] · row[ids[i, k]]``, ``[n, d]``.

    Parameters
    ----------
    near, far : tables ``[R, d]`` and ``[S, d]``; ids from R on index the second
    ids, weights : int32 and float32 ``[n, K]``; a row with weight 0 is not read, so its NaN does not count
    """
    return work.emit("weigh_rows", (near, far, ids, weights))[0]


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    name = "weigh_rows"
    require(len(inputs) == 4, name, f"takes 4 tensors, got {len(inputs)}")
    near, far, ids, weights = inputs
    require_floats(name, (near, far, weights))
    d = axes_of(name, near, 2)[1]
    require(axes_of(name, far, 2)[1] == d, name, "rows of both tables need one width")
    n, _ = axes_of(name, ids, 2)
    require(ids.dtype == "int32", name, "ids must be int32")
    require(weights.shape == ids.shape, name, "weights need the shape of ids")
    return [float_output("weighed", n, d)]


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    near, far, ids, weights = inputs
    rows = np.concatenate([near, far])
    y = np.zeros((len(ids), near.shape[1]), near.dtype)
    for k in range(ids.shape[1]):
        by = weights[:, k : k + 1]
        y = np.where(by == 0, y, y + by * rows[ids[:, k]])
    return [y]


def _written_out(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int, ...]:
    near, far, ids, weights = inputs
    n, count = work.shape(ids)
    rows, terms = work.concat((near, far), 0), list[int]()
    for k in range(count):
        one = work.gather_rows(rows, work.reshape(work.part(ids, 1, k, k + 1), (n,)))
        terms.append(work.binary("mul_nonzero", one, work.part(weights, 1, k, k + 1)))
    return (work.add(*terms) if terms else work.zeros((n, work.shape(near)[1])),)


declare("weigh_rows", _infer, _run, vjp_by_recomputing(_written_out, (0, 1, 3)), written_out=_written_out)
