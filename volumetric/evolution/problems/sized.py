"""A problem and the size of genomes as two objectives: what a network can do against what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.evaluate import Cohort, Problem, Scores
from volumetric.evolution.genome import Genome


@dataclass(frozen=True, slots=True)
class Sized:
    """Objectives of `ParetoRun`: the fitness of a problem, and minus the size of the genome.

    The size is the number of enabled connections, or of weights of a grid.
    """

    problem: Problem

    def configure(self, config: Any) -> Any:
        """Return what the problem makes of `config`."""
        configure = getattr(self.problem, "configure", None)
        return config if configure is None else configure(config)

    def score_all(self, cohort: Cohort) -> NDArray[np.float64]:
        """Return [genomes, 2]; NaN marks failures."""
        found = self.problem.score_all(cohort)
        fitness = found.fitness if isinstance(found, Scores) else np.asarray(found, np.float64)
        sizes = [_size(cohort.genome(row)) for row in range(len(cohort))]
        return np.stack([fitness, -np.array(sizes, np.float64)], axis=1)


def _size(genome: Any) -> int:
    if isinstance(genome, Genome):
        return int(genome.connections["enabled"].sum())
    return sum(int(np.prod(store.shape)) for store in genome.params.values())
