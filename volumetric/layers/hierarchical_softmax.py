"""Softmax over a tree: the probability of a leaf is the product along its path."""

from __future__ import annotations

import itertools
import operator

from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.layer_spec import layer
from volumetric.layers.softmax import AxisSoftmax


@layer("hierarchical_softmax")
class HierarchicalSoftmax(AxisSoftmax):
    """Probabilities of the leaves of a regular tree.

    ::

        p(leaf) = Π_levels softmax(logits of the node's children)[chosen child]

    ``levels=(3, 4)`` is a choice among 3, then among 4 below it. There is one logit for every node except the root,
    level after level (here 3 + 12), and one probability for every leaf (here 12).

    Morin & Bengio 2005.

    Attributes
    ----------
    levels : branching of each level of the tree
    """

    levels: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the fields."""
        AxisSoftmax.__post_init__(self)
        if not self.levels or any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in self.levels):
            raise SpecError(f"hierarchical_softmax: levels must be whole numbers above 0, got {self.levels!r}")

    @property
    def nodes(self) -> tuple[int, ...]:
        """Number of nodes of each level below the root."""
        return tuple(itertools.accumulate(self.levels, operator.mul))

    def outcomes(self, size: int) -> int:
        if size != sum(self.nodes):
            parts = " + ".join(map(str, self.nodes))
            raise ShapeError(f"hierarchical_softmax: levels {self.levels} need {parts} logits, got {size}")
        return self.nodes[-1]

    def probability_nodes(self, work: GraphBuilder, z: int) -> int:
        rows = work.shape(z)[0]
        path: int | None = None
        for level, nodes, branches in zip(work.split(z, self.nodes, 1), self.nodes, self.levels, strict=True):
            parents = rows * nodes // branches
            choice = work.softmax(work.reshape(level, (parents, branches)))
            if path is not None:
                choice = work.binary("mul", work.reshape(path, (parents, 1)), choice)
            path = work.reshape(choice, (rows, nodes))
        return z if path is None else path
