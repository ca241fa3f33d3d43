"""Who has how many offspring: stagnation, shares by adjusted fitness, elites, parents."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.config import RunConfig
from volumetric.evolution.species import Ranking, SpeciesTable

IntArray = NDArray[np.int64]
F64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offspring:
    """Parents of the next generation, see `volumetric.evolution.breed.breed`.

    Attributes
    ----------
    parents : int64 [children, 3]
    mutates : uint8 [children]
    """

    parents: IntArray
    mutates: NDArray[np.uint8]


def breeders(table: SpeciesTable, generation: int, *, refocus: bool, config: RunConfig) -> NDArray[np.bool_]:
    """Return which species may have offspring.

    A species that has not improved for `max_stagnation` generations may not, unless it is among the best `elitism`.
    With `refocus` only the two best may.
    """
    best_first = np.argsort(-table.best, kind="stable")
    if refocus:
        allowed = np.zeros(len(table), np.bool_)
        allowed[best_first[:2]] = True
        return allowed
    allowed = generation - table.improved < config.species.max_stagnation
    allowed[best_first[: config.species.elitism]] = True
    return allowed


def apportion(shares: F64Array, total: int, least: int) -> IntArray:
    """Divide exactly `total` children among species in proportion to `shares`, at least `least` each if there is room.

    Parameters
    ----------
    shares : float64 [species], not negative; equal parts if all are zero
    """
    species = len(shares)
    if species > total:  # more species than children: one each for the best
        counts = np.zeros(species, np.int64)
        counts[np.argsort(-shares, kind="stable")[:total]] = 1
        return counts
    least = min(least, total // species)
    whole = float(shares.sum())
    ideal = total * shares / whole if whole > 0 else np.full(species, total / species)
    counts = np.maximum(least, ideal.astype(np.int64))
    gaps = ideal - counts
    spare = total - int(counts.sum())
    if spare > 0:
        # Of those below their ideal number nobody gets a second child before all have one.
        below = int((gaps > 0).sum())
        counts[np.argsort(-gaps, kind="stable")[: min(spare, below)]] += 1
    while (spare := total - int(counts.sum())) != 0:
        sign = 1 if spare > 0 else -1
        # The species that is furthest from its ideal number gets or gives one child; of equal ones the first.
        able = np.ones(species, np.bool_) if sign > 0 else counts > least
        counts[np.where(able, sign * (ideal - counts), -np.inf).argmax()] += sign
    return counts


def plan(
    ranking: Ranking,
    allowed: NDArray[np.bool_],
    score: F64Array,
    first_id: int,
    key: np.uint64,
    config: RunConfig,
) -> Offspring:
    """Choose elites and parents for exactly ``config.population`` children.

    Parameters
    ----------
    ranking : the scored generation
    allowed : bool [species]; which species may have offspring, at least one
    score : float64 [genomes]
    first_id, key : name the random stream of each child's choice of parents
    """
    from volumetric.kernels.cpu import breeding

    rules = config.reproduction
    chosen = np.flatnonzero(allowed)
    shares = ranking.mean[chosen] - score.min()
    quotas = apportion(shares, config.population, rules.min_species)
    parents = np.full((config.population, 3), -1, np.int64)
    mutates = np.ones(config.population, np.uint8)
    child = 0
    for start, count, quota in zip(
        ranking.starts[chosen].tolist(), ranking.counts[chosen].tolist(), quotas.tolist(), strict=True
    ):
        elites = min(rules.elitism, count, quota) if count >= rules.elitism_from else 0
        if elites:
            parents[child : child + elites, 0] = ranking.order[start : start + elites]
            parents[child : child + elites, 2] = 0
            mutates[child : child + elites] = 0
        child += quota
    survivors = np.ceil(ranking.counts * rules.survival).astype(np.int64).clip(2)
    breeding.pair(
        ranking.order, ranking.starts, np.minimum(survivors, ranking.counts),
        ranking.order[ranking.starts[chosen]], score, np.repeat(chosen, quotas), rules.crossover, rules.interspecies,
        first_id, key, parents,
    )  # fmt: skip
    return Offspring(parents=parents, mutates=mutates)
