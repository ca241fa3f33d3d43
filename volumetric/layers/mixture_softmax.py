"""A weighted mean of several softmaxes."""

from __future__ import annotations

from volumetric.base.errors import ShapeError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import expect_positive, layer
from volumetric.layers.softmax import AxisSoftmax


@layer("mixture_softmax")
class MixtureSoftmax(AxisSoftmax):
    """A weighted sum of softmaxes, which a single softmax of few features cannot express.

    ::

        y = Σ_k softmax(w)_k · softmax(z_k)

    The logits are the `components` logits w of the weights, then those of every component. So ``components · (1 + n)``
    logits give n probabilities.

    Yang et al. 2018 (arXiv 1711.03953).

    Attributes
    ----------
    components : number of distributions
    """

    components: int

    def __post_init__(self) -> None:
        """Check the fields."""
        AxisSoftmax.__post_init__(self)
        expect_positive(self, "components")

    def outcomes(self, size: int) -> int:
        if size % self.components or size < 2 * self.components:
            raise ShapeError(
                f"mixture_softmax: needs {self.components} logits for the weights and as many equal parts, got {size}"
            )
        return size // self.components - 1

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        rows, size = work.shape(z)
        count, outcomes = self.components, self.outcomes(size)
        logits, rest = work.split(z, [count, count * outcomes], 1)
        weights = work.reshape(work.softmax(logits), (rows, count, 1))
        parts = work.reshape(work.softmax(work.reshape(rest, (rows * count, outcomes))), (rows, count, outcomes))
        return work.reshape(work.reduce(work.binary("mul", weights, parts), "sum", (1,)), (rows, outcomes))
