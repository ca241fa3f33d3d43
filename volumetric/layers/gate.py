"""Mixture of experts: a trained gate computes weights of the branches of a Parallel for each token."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.layers.dense import affine_params
from volumetric.layers.emit_scope import Scope, as_rows, linear
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)

Scoring = Literal["softmax", "softmax_all", "sigmoid"]
SCORINGS: tuple[Scoring, ...] = get_args(Scoring)


@layer("gate")
class Gate(LayerSpec):
    """Weights of branches for each row, 0 except for the `top_k` largest.

    ::

        softmax        y = softmax(top_k(x Wᵀ + b))         sums to 1
        softmax_all    y = top_k(softmax(x Wᵀ + b))         over all logits, not made to sum to 1
        sigmoid        y = top_k(σ(x Wᵀ + b))               each branch by itself

    ``softmax`` equals the softmax over all branches, reduced to the largest and renormalised. Of equal logits the
    earlier is taken. A branch that no row takes is not computed. A branch that a row does not take has weight 0 with
    gradient 0; only with ``softmax_all`` its logit has a gradient.

    This is the router of a mixture of experts (Shazeer et al. 2017, arXiv 1701.06538; Mixtral, arXiv 2401.04088). A
    `Parallel` with ``combine="filter"`` has one.

    Attributes
    ----------
    in_features : width of a row
    out_features : number of branches
    top_k : branches that have a weight above 0 (None: all)
    bias : whether there is b
    scoring : ``"softmax"``, ``"softmax_all"`` (Qwen1.5-MoE, ``norm_topk_prob=false``) or ``"sigmoid"``
    """

    in_features: int = positional()
    out_features: int = positional()
    top_k: int | None = None
    bias: bool = False
    scoring: Scoring = "softmax"

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.scoring not in SCORINGS:
            raise SpecError(f"gate: unknown scoring {self.scoring!r}", hint="one of " + ", ".join(SCORINGS))
        expect_positive(self, "in_features", "out_features", *(("top_k",) if self.top_k is not None else ()))
        if self.top_k is not None and self.top_k > self.out_features:
            raise SpecError(f"gate: top_k must be at most the {self.out_features} branches, got {self.top_k}")

    def params(self) -> tuple[ParamSpec, ...]:
        params = affine_params("", self.out_features, self.in_features, bias=self.bias)
        return tuple(replace(param, delicate=True) for param in params)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.out_features)

    def emit(self, scope: Scope, x: int) -> int:
        work = scope.work
        activation = "sigmoid" if self.scoring == "sigmoid" else "linear"
        y = as_rows(work, linear(work, scope.params(self), ("",), x, activation=activation))
        if self.scoring == "softmax_all":
            y = work.softmax(y)
        if self.top_k is not None and self.top_k < self.out_features:
            y = work.keep_largest(y, self.top_k)
            if self.scoring != "softmax":  # scores are not below 0: the others become 0, and NaN stays
                y = work.unary(y, "relu")
        if self.scoring == "softmax":
            y = work.softmax(y)
        return work.reshape(y, (*work.shape(x)[:-1], self.out_features))
