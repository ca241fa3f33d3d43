"""The hall of fame: the best different genomes of a whole run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Champion:
    """A genome that was among the best.

    Attributes
    ----------
    genome, fitness : the genome and what it scored
    id, generation : which it was, and when
    """

    genome: Any
    fitness: float
    id: int
    generation: int


def entered(
    hall: tuple[Champion, ...],
    score: NDArray[np.float64],
    size: int,
    sign: float,
    make: Callable[[int], Champion],
) -> tuple[Champion, ...]:
    """Return the hall after a generation: at most `size` champions, best first, of equal ones the earlier first.

    A genome that is in the hall already does not enter again; what it scored first stays.

    Parameters
    ----------
    score : float64 [genomes], more is better; -inf for those that are no candidates
    sign : what the fitness of a champion is multiplied by to be a score
    make : row of the generation → champion; called for those alone that are good enough
    """
    if size == 0:
        return ()
    worst = -np.inf if len(hall) < size else sign * hall[-1].fitness
    rows = np.flatnonzero(score > worst)
    if len(rows) == 0:
        return hall
    found = list(hall)
    for row in rows[np.argsort(-score[rows], kind="stable")[:size]].tolist():
        if len(found) >= size and score[row] <= sign * found[size - 1].fitness:
            break
        champion = make(row)
        if all(champion.genome != other.genome for other in found):
            found.append(champion)
    found.sort(key=lambda champion: -sign * champion.fitness)
    return tuple(found[:size])
