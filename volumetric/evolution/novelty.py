"""Novelty search: reward new behaviour.

Lehman & Stanley, "Abandoning objectives: evolution through the search for novelty alone", Evolutionary Computation
19(2), 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.base.rng import generator
from volumetric.evolution.evaluate import Cohort

_BLOCK = 1 << 22
"""Differences computed at a time, to limit memory for large populations."""
_ARCHIVE_STREAM = 0x4E4F


@dataclass(frozen=True, slots=True, kw_only=True)
class NoveltyConfig:
    """Settings of the novelty measure and the archive.

    Attributes
    ----------
    neighbours : number of nearest behaviours, of generation and archive, whose mean distance is the novelty
    additions : behaviours of each generation that enter the archive, chosen at random
    capacity : maximum size of the archive; the oldest entries are dropped
    """

    neighbours: int = 15
    additions: int = 5
    capacity: int = 2000

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.neighbours < 1 or self.additions < 0 or self.capacity < 1:
            raise SpecError(
                f"novelty needs neighbours ≥ 1, additions ≥ 0, capacity ≥ 1, got {self.neighbours}, {self.additions}, "
                f"{self.capacity}"
            )


class NoveltyArchive:
    """Archive of behaviours.

    Additions are random instead of above a threshold. So the archive covers the visited behaviours without a parameter
    to tune (Gomes, Mariano & Christensen 2015).

    Parameters
    ----------
    config : see `NoveltyConfig`
    seed : of the choice of additions
    """

    def __init__(self, config: NoveltyConfig | None = None, seed: int = 0) -> None:
        self.config: NoveltyConfig = config or NoveltyConfig()
        self.seed = seed
        self.generations: int = 0
        self.behaviours: NDArray[np.float64] = np.empty((0, 0))

    def __len__(self) -> int:
        return len(self.behaviours)

    def score(self, behaviours: ArrayLike) -> NDArray[np.float64]:
        """Return the novelty of each behaviour, float64 ``[genomes]``, then add some to the archive.

        Parameters
        ----------
        behaviours : ``[genomes, features]``, one vector for each genome of a generation

        Raises
        ------
        ShapeError
            The array is not two-dimensional, or has another width than the archive.
        SpecError
            A behaviour is not finite.
        """
        table = np.asarray(behaviours, np.float64)
        if table.ndim != 2 or len(table) == 0:
            raise ShapeError(f"behaviours must be a table [genomes, features], got shape {table.shape}")
        if len(self) and table.shape[1] != self.behaviours.shape[1]:
            raise ShapeError(f"the archive has behaviours of {self.behaviours.shape[1]} features, got {table.shape[1]}")
        if not np.isfinite(table).all():
            raise SpecError(
                "a behaviour is NaN or infinite", hint="exclude failed genomes, or set their behaviours to zeros"
            )
        known = np.concatenate([table, self.behaviours]) if len(self) else table
        scores = _mean_nearest(table, known, self.config.neighbours)
        self._remember(table)
        return scores

    def _remember(self, table: NDArray[np.float64]) -> None:
        rng = generator(self.seed, _ARCHIVE_STREAM, self.generations)
        chosen = rng.choice(len(table), min(self.config.additions, len(table)), replace=False)
        behaviours = self.behaviours if len(self) else table[:0]
        self.behaviours = np.concatenate([behaviours, table[np.sort(chosen)]])[-self.config.capacity :]
        self.generations += 1


def _mean_nearest(table: NDArray[np.float64], known: NDArray[np.float64], neighbours: int) -> NDArray[np.float64]:
    """Return the mean Euclidean distance of each row to its nearest rows of `known`, which begins with `table`."""
    count = min(neighbours, len(known) - 1)
    if count == 0:
        return np.zeros(len(table))
    scores = np.empty(len(table))
    step = max(1, _BLOCK // (len(known) * max(1, table.shape[1])))
    for start in range(0, len(table), step):
        rows = table[start : start + step]
        distances = np.linalg.norm(rows[:, None, :] - known[None, :, :], axis=-1)
        distances[np.arange(len(rows)), start + np.arange(len(rows))] = np.inf  # a row is not its own neighbour
        nearest = np.partition(distances, count - 1, axis=1)[:, :count]
        scores[start : start + len(rows)] = nearest.mean(axis=1)
    return scores


_BEHAVIOURS, _GENERATIONS = "novelty_behaviours", "novelty_generations"


class NoveltySearch:
    """Rewards genomes for new behaviour; see `volumetric.evolution.novelty`.

    Checkpoints contain the archive, so that a resumed run equals an uninterrupted one.

    Parameters
    ----------
    behave : a cohort → behaviours, [genomes, features]; a row with NaN is a failure
    config : settings of novelty and archive
    seed : of the choice of additions
    """

    def __init__(
        self, behave: Callable[[Cohort], ArrayLike], config: NoveltyConfig | None = None, seed: int = 0
    ) -> None:
        self._behave = behave
        self.archive: NoveltyArchive = NoveltyArchive(config, seed)

    def score_all(self, cohort: Cohort) -> NDArray[np.float64]:
        """Return the novelty of every genome, then add some behaviours to the archive."""
        behaviours = np.asarray(self._behave(cohort), np.float64)
        if behaviours.ndim != 2 or len(behaviours) != len(cohort):
            raise ShapeError(f"behaviours have shape {behaviours.shape}, expected [{len(cohort)}, features]")
        fine = np.isfinite(behaviours).all(axis=1)
        scores = np.full(len(cohort), np.nan)
        if fine.any():
            scores[fine] = self.archive.score(behaviours[fine])
        return scores

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the archive for a checkpoint."""
        return {_BEHAVIOURS: self.archive.behaviours, _GENERATIONS: np.array(self.archive.generations)}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Restore the result of `state`.

        Raises
        ------
        CheckpointError : the checkpoint has no archive
        """
        if _BEHAVIOURS not in state or _GENERATIONS not in state or state[_BEHAVIOURS].ndim != 2:
            raise CheckpointError("the checkpoint has no archive of behaviours")
        self.archive.behaviours = state[_BEHAVIOURS].astype(np.float64)
        self.archive.generations = int(state[_GENERATIONS].item())
