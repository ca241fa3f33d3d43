"""A softmax in two steps for many classes of very unequal frequency."""

from __future__ import annotations

import itertools
from itertools import pairwise

from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import layer
from volumetric.layers.softmax import AxisSoftmax


@layer("adaptive_softmax")
class AdaptiveSoftmax(AxisSoftmax):
    """A softmax that chooses frequent classes directly, and rare ones within clusters.

    ::

        p(class) = softmax(head)[class]                                  class < cutoffs[0]
        p(class) = softmax(head)[cluster] · softmax(tail)[class]         otherwise

    With ``n_classes=9, cutoffs=(2, 5)`` the head chooses among the classes 0 and 1 and the clusters 2…4 and 5…8. The
    logits are those of the head, its classes first, and then those of every cluster (here 4 + 3 + 4). In the paper
    clusters have smaller projections. Build these as dense layers in front, joined by a `Parallel`.

    Grave et al. 2017 (arXiv 1609.04309).

    Attributes
    ----------
    n_classes : number of probabilities
    cutoffs : first classes of the clusters
    """

    n_classes: int
    cutoffs: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the fields."""
        AxisSoftmax.__post_init__(self)
        bounds = (0, *self.cutoffs, self.n_classes)
        if not self.cutoffs or any(a >= b for a, b in itertools.pairwise(bounds)):
            raise SpecError(
                f"adaptive_softmax: cutoffs must rise between 0 and {self.n_classes} classes, got {self.cutoffs!r}"
            )

    def outcomes(self, size: int) -> int:
        if size != self.n_classes + len(self.cutoffs):
            needs = f"{self.n_classes} classes and {len(self.cutoffs)} clusters"
            raise ShapeError(f"adaptive_softmax: needs a logit for each of {needs}, got {size}")
        return self.n_classes

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        direct = self.cutoffs[0]
        sizes = [b - a for a, b in pairwise((*self.cutoffs, self.n_classes))]
        head, *tails = (work.softmax(part) for part in work.split(z, [direct + len(sizes), *sizes], 1))
        chosen = [work.part(head, 1, direct + i, direct + i + 1) for i in range(len(sizes))]
        products = [work.binary("mul", c, tail) for c, tail in zip(chosen, tails, strict=True)]
        return work.concat((work.part(head, 1, 0, direct), *products), 1)
