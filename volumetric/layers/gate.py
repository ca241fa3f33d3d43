"""Mixture of experts: a trained gate gives every token its own weights for the branches of a Parallel."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import SpecError
from volumetric.layers.base import (
    Arrays,
    Grads,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    expect_last,
    expect_positive,
    layer,
)
from volumetric.layers.dense import affine, affine_params, affine_vjp
from volumetric.layers.softmax import softmax, softmax_vjp


@layer("gate")
class Gate(LayerSpec):
    """Weights of branches for each row, ``y = softmax(top_k(x Wᵀ + b))``: 0 but for the `top_k` largest, sum 1.

    This equals the softmax over all branches, cut down to the largest and renormalised (Shazeer et al. 2017, arXiv
    1701.06538; Mixtral, arXiv 2401.04088). Of equal logits the earlier one is taken.

    Attributes
    ----------
    in_features, out_features : width of a row, and the number of branches
    top_k : branches that have a weight above 0 (None: all)
    """

    in_features: int
    out_features: int
    top_k: int | None = None
    bias: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "in_features", "out_features", *(("top_k",) if self.top_k is not None else ()))
        if self.top_k is not None and self.top_k > self.out_features:
            raise SpecError(f"gate: top_k {self.top_k} is more than its {self.out_features} branches")

    def params(self) -> tuple[ParamSpec, ...]:
        return affine_params("", self.out_features, self.in_features, bias=self.bias)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.out_features)

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        logits = affine(p, "", xs[0])
        kept = logits if self.top_k is None else keep_largest(logits, self.top_k)
        y = softmax(kept)
        return y, {"x": xs[0], "y": y, "logits": kept}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_logits = softmax_vjp(saved["y"], gy)
        if (
            self.top_k is not None
        ):  # a branch that is not taken has no gradient, not even where the row's others are NaN
            g_logits = np.where(np.isneginf(saved["logits"]), gy.dtype.type(0), g_logits)
        gx = affine_vjp(p, "", saved["x"], g_logits, params)
        return Grads((gx,), params)


def keep_largest(logits: Array, count: int) -> Array:
    """Return `logits` with all but the `count` largest of the last axis at -inf; NaN stays and counts as none."""
    order = np.argsort(-logits, axis=-1, kind="stable")[..., :count]
    kept = np.isnan(logits)
    np.put_along_axis(kept, order, True, axis=-1)
    return np.where(kept, logits, logits.dtype.type(-np.inf))
