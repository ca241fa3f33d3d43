"""Independent choices: softmax in each row of a small grid."""

from __future__ import annotations

from volumetric.base.errors import ShapeError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import expect_positive, layer
from volumetric.layers.softmax import AxisSoftmax


@layer("grid_softmax")
class GridSoftmax(AxisSoftmax):
    """A softmax for each row of a grid of ``rows · cols`` logits.

    ::

        y[r, c] = exp(x[r, c] / τ) / Σ_k exp(x[r, k] / τ)

    Attributes
    ----------
    rows : choices of the grid
    cols : logits in a row of the grid
    """

    rows: int
    cols: int

    def __post_init__(self) -> None:
        """Check the fields."""
        AxisSoftmax.__post_init__(self)
        expect_positive(self, "rows", "cols")

    def outcomes(self, size: int) -> int:
        if size != self.rows * self.cols:
            raise ShapeError(
                f"grid_softmax: a grid of {self.rows}×{self.cols} needs {self.rows * self.cols} logits, got {size}"
            )
        return size

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        rows = work.reshape(z, (work.shape(z)[0] * self.rows, self.cols))
        return work.reshape(work.softmax(rows), work.shape(z))
