"""Novelty search as a problem: the fitness of a genome is how unlike earlier behaviour its own is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from volumetric.errors import CheckpointError, ShapeError
from volumetric.evolution.evaluate import Cohort
from volumetric.evolution.novelty import NoveltyArchive, NoveltyConfig

_BEHAVIOURS, _GENERATIONS = "novelty_behaviours", "novelty_generations"


class NoveltySearch:
    """Rewards genomes for what no other one does; see `volumetric.evolution.novelty`.

    The archive goes into the checkpoints of the run, so that a resumed run is the uninterrupted one.

    Parameters
    ----------
    behave : a cohort → what each genome does, [genomes, features]; a row with NaN is a failure
    config : how novelty is measured
    seed : of the choice of what the archive remembers
    """

    def __init__(
        self, behave: Callable[[Cohort], ArrayLike], config: NoveltyConfig | None = None, seed: int = 0
    ) -> None:
        self._behave = behave
        self.archive = NoveltyArchive(config, seed)

    def score_all(self, cohort: Cohort) -> NDArray[np.float64]:
        """Return the novelty of every genome, then remember some of their behaviours."""
        behaviours = np.asarray(self._behave(cohort), np.float64)
        if behaviours.ndim != 2 or len(behaviours) != len(cohort):
            raise ShapeError(f"behaviours have shape {behaviours.shape}, expected [{len(cohort)}, features]")
        fine = np.isfinite(behaviours).all(axis=1)
        scores = np.full(len(cohort), np.nan)
        if fine.any():
            scores[fine] = self.archive.score(behaviours[fine])
        return scores

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return what a checkpoint keeps of the archive."""
        return {_BEHAVIOURS: self.archive.behaviours, _GENERATIONS: np.array(self.archive.generations)}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Go on from what `state` returned.

        Raises
        ------
        CheckpointError : the checkpoint holds no archive
        """
        if _BEHAVIOURS not in state or _GENERATIONS not in state or state[_BEHAVIOURS].ndim != 2:
            raise CheckpointError("the checkpoint holds no archive of behaviours")
        self.archive.behaviours = state[_BEHAVIOURS].astype(np.float64)
        self.archive.generations = int(state[_GENERATIONS].item())
