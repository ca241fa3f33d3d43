"""Species: groups of genomes near a representative, their records, and the allocation of offspring."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.evolution_config import EvolutionConfig, RunConfig
from volumetric.evolution.genome import Genome
from volumetric.evolution.pool import KernelSettings, Pool, settings_of

IntArray = NDArray[np.int64]
F64Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpeciesTable:
    """All species of a generation, oldest first. None is empty.

    Attributes
    ----------
    ids : int64 [species]
    founded, improved : int64 [species]; generation of the first member, and of the last improvement of `best`
    best : float64 [species]; highest score ever, -inf before the first evaluation
    member : int64 [genomes]; index of each genome's species
    threshold : compatibility threshold
    next_id : id of the next species
    """

    ids: IntArray
    founded: IntArray
    improved: IntArray
    best: F64Array
    member: IntArray
    threshold: float
    next_id: int = 0

    @staticmethod
    def none(threshold: float) -> SpeciesTable:
        """Return the empty table before the first generation."""
        nothing = np.empty(0, np.int64)
        return SpeciesTable(
            ids=nothing, founded=nothing, improved=nothing, best=np.empty(0), member=nothing, threshold=threshold
        )

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Ranking:
    """A scored generation by species.

    Attributes
    ----------
    order : int64 [genomes]; by species, then best first
    starts, counts : int64 [species]; range of each species in `order`
    best, mean : float64 [species]; highest and mean score. The mean is the sum of the paper's adjusted fitness f / |S|
    """

    order: IntArray
    starts: IntArray
    counts: IntArray
    best: F64Array
    mean: F64Array


def distance(first: Genome, second: Genome, config: EvolutionConfig) -> float:
    """Return the compatibility distance δ = c₁·E/N + c₂·D/N + c₃·W̄ of two genomes; see `SpeciesConfig`.

    E and D count excess and disjoint connection genes; N is their number in the larger genome, or 1 for small genomes.
    W̄ is the mean difference of matching weights and biases; another activation or aggregation counts as 1.
    """
    return float(distances([first, second], config)[0, 1])


def distances(genomes: list[Genome], config: EvolutionConfig) -> F64Array:
    """Return the compatibility distances of all pairs, float64 [genomes, genomes]."""
    from volumetric.evolution.kernels import genome_kernels as kernels

    pool = Pool.of(genomes)
    out = np.empty((len(pool), len(pool)))
    kernels.distances(pool.nodes, pool.connections, pool.sizes, settings_of(config).coefficients, out)
    return out


def speciate(
    pool: Pool, table: SpeciesTable, representatives: Pool, generation: int, settings: KernelSettings
) -> SpeciesTable:
    """Return the species of a new generation.

    Each genome joins the first species of `table` whose representative is closer than the threshold, else it founds a
    new species. Empty species are removed.
    """
    from volumetric.evolution.kernels import genome_kernels as kernels

    member, founders = np.empty(len(pool), np.int64), np.empty(len(pool), np.int64)
    founded = kernels.speciate(
        pool.nodes, pool.connections, pool.sizes, representatives.nodes, representatives.connections,
        representatives.sizes, settings.coefficients, table.threshold, member, founders,
    )  # fmt: skip
    return species_of_generation(table, member, founded, generation, settings.species_target, settings.threshold_step)


def species_of_generation(
    table: SpeciesTable, member: IntArray, founded: int, generation: int, target: int, step: float
) -> SpeciesTable:
    """Return the species of a new generation, with `founded` new ones and without empty ones.

    Parameters
    ----------
    member : int64 [genomes]; index in `table`, new species after the old ones
    target, step : as in `SpeciesConfig`; the threshold moves towards the target number of species
    """
    new = np.full(founded, generation)
    ids = np.concatenate((table.ids, np.arange(table.next_id, table.next_id + founded)))
    populated = np.bincount(member, minlength=len(ids)) > 0
    grown = SpeciesTable(
        ids=ids,
        founded=np.concatenate((table.founded, new)),
        improved=np.concatenate((table.improved, new)),
        best=np.concatenate((table.best, np.full(founded, -np.inf))),
        member=member,
        threshold=_next_threshold(table.threshold, int(populated.sum()), target, step),
        next_id=table.next_id + founded,
    )
    return grown if populated.all() else keep(grown, populated)


def keep(table: SpeciesTable, mask: NDArray[np.bool_]) -> SpeciesTable:
    """Return the table without the species whose `mask` is false; their members get an index below 0."""
    position = np.where(mask, np.cumsum(mask) - 1, -1)
    return replace(
        table,
        ids=table.ids[mask],
        founded=table.founded[mask],
        improved=table.improved[mask],
        best=table.best[mask],
        member=position[table.member],
    )


def _next_threshold(threshold: float, species: int, target: int, step: float) -> float:
    if target == 0 or species == target:
        return threshold
    return max(threshold + (step if species > target else -step), step)


def rank(table: SpeciesTable, score: F64Array) -> Ranking:
    """Sort a generation by species and score."""
    order = np.lexsort((-score, table.member))
    counts = np.bincount(table.member, minlength=len(table))
    starts = np.cumsum(counts) - counts
    mean = np.bincount(table.member, weights=score, minlength=len(table)) / counts
    return Ranking(order=order, starts=starts, counts=counts, best=score[order[starts]], mean=mean)


def remember(table: SpeciesTable, ranking: Ranking, generation: int) -> SpeciesTable:
    """Return the table with updated best scores and generations of the last improvement."""
    better = ranking.best > table.best
    return replace(
        table,
        best=np.where(better, ranking.best, table.best),
        improved=np.where(better, generation, table.improved),
    )


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
    """Divide exactly `total` children among species in proportion to `shares`, at least `least` each if possible.

    Parameters
    ----------
    shares : float64 [species], not negative; equal parts if all are zero
    """
    species = len(shares)
    if species > total:  # more species than children: one child for each of the best
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
        # Species below their ideal number get a second child only after all have one.
        below = int((gaps > 0).sum())
        counts[np.argsort(-gaps, kind="stable")[: min(spare, below)]] += 1
    while (spare := total - int(counts.sum())) != 0:
        sign = 1 if spare > 0 else -1
        # The species furthest from its ideal number gains or loses one child; of equal ones the first.
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
    first_id, key : select the random stream of each child's choice of parents
    """
    from volumetric.evolution.kernels import breeding

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
