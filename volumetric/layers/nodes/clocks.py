"""Steps of clocks as nodes of a graph: truths are 0 and 1, one for each stream."""

from __future__ import annotations

from collections.abc import Callable

from volumetric.graph.build import GraphBuilder


class GraphSteps:
    """What `volumetric.layers.clock_steps.step` computes with. No gradient goes through it.

    Parameters
    ----------
    watched, happens : name → a tensor of the shape of counts
    """

    def __init__(self, work: GraphBuilder, watched: Callable[[str], int], happens: Callable[[str], int]) -> None:
        self.work, self.watched, self.happens = work, watched, happens

    def over(self, x: int, number: float) -> int:
        """Where x is greater."""
        return self.work.binary("greater", x, self.work.scalar(number))

    def under(self, x: int, number: float) -> int:
        """Where x is less."""
        return self.work.binary("greater", self.work.scalar(number), x)

    def both(self, a: int, b: int) -> int:
        """Where both are true."""
        return self.work.binary("mul", a, b)

    def either(self, a: int, b: int) -> int:
        """Where one is true."""
        return self.work.binary("max", a, b)

    def negated(self, a: int) -> int:
        """Where it is not true."""
        return self.work.affine(a, -1.0, 1.0)

    def counted(self, count: int, begins: int, steps: float) -> int:
        """`steps` where a count begins, else one less, down to 0."""
        work = self.work
        down = work.unary(work.affine(count, 1.0, -1.0), "relu")
        return work.add(work.binary("mul", down, self.negated(begins)), work.affine(begins, steps))
