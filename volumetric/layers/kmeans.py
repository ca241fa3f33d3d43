"""KMeans: soft assignment of rows to trained centres."""

from __future__ import annotations

import math
from math import prod
from typing import Literal

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.layers.emit_scope import Scope, as_rows
from volumetric.layers.layer_fields import positional
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    expect_last,
    expect_positive,
    layer,
)


@layer("kmeans")
class KMeans(LayerSpec):
    """Soft k-means of each row.

    ::

        a_k = softmax_k(−‖x − c_k‖² / 2τ²)
        y = a                    output = "probabilities"
        y = Σ_k a_k c_k          output = "features"

    This is the posterior of a mixture of equal, isotropic Gaussians. The centres are trained like any weight;
    ``volumetric.analysis.kmeans`` clusters points.

    Dempster, Laird & Rubin 1977.

    Attributes
    ----------
    num_clusters : centres, the rows of ``centers`` ``[num_clusters, in_features]``
    in_features : features of a row of input
    temperature : τ, the standard deviation of a cluster; near 0 each row belongs to its nearest centre only
    output : ``"probabilities"``: a, ``[..., num_clusters]``. ``"features"``: ``Σₖ aₖ cₖ``, ``[..., in_features]``
    """

    num_clusters: int = positional()
    in_features: int
    temperature: float = 1.0
    output: Literal["probabilities", "features"] = "probabilities"

    def __post_init__(self) -> None:
        """Check the fields."""
        expect_positive(self, "num_clusters", "in_features")
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise SpecError(f"kmeans: temperature must be above 0, got {self.temperature}")
        if self.output not in ("probabilities", "features"):
            raise SpecError(f"kmeans: unknown output {self.output!r}", hint="one of probabilities, features")

    def params(self) -> tuple[ParamSpec, ...]:
        return (ParamSpec(name="centers", shape=(self.num_clusters, self.in_features)),)

    def output_shape(self, *inputs: Shape) -> Shape:
        expect_last(self, inputs[0], self.in_features)
        return (*inputs[0][:-1], self.num_clusters if self.output == "probabilities" else self.in_features)

    def emit(self, scope: Scope, x: int) -> int:
        work, centers = scope.work, scope.params(self)["centers"]
        clusters, width = work.shape(centers)
        middle = work.reduce(centers, "mean", (0,))
        work.detached.add(middle)  # the assignment does not depend on it: it only keeps values small
        rows, at = work.binary("sub", as_rows(work, x), middle), work.binary("sub", centers, middle)
        norms = work.reshape(work.reduce(work.unary(at, "square"), "sum", (1,)), (clusters,))
        count = prod(work.shape(x)[:-1])
        logits = work.gemm(
            work.reshape(rows, (1, count, width)),
            work.reshape(at, (1, clusters, width)),
            work.affine(norms, -0.5),
            trans_b=True,
        )
        logits = work.affine(work.reshape(logits, (count, clusters)), 1 / self.temperature**2)
        y = work.softmax(logits)
        if self.output == "features":
            y = work.gemm(work.reshape(y, (1, count, clusters)), work.reshape(centers, (1, clusters, width)))
        return work.reshape(y, self.output_shape(work.shape(x)))
