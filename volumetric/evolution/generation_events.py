"""What is told of a generation that was just evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.evolution.reporters import (
    Evaluated,
    EvaluationFailed,
    Event,
    Solved,
    SpeciesEnded,
    SpeciesFounded,
)
from volumetric.evolution.species import SpeciesTable

if TYPE_CHECKING:
    from volumetric.evolution.run import Run


def generation_events(run: Run[Any, Any], before: SpeciesTable) -> list[Event]:
    """Return the events of the generation that `run` has just evaluated; `before` are the species before it."""
    generation, species, champion = run.generation, run.species, run.champion
    fitness = run.progress.fitness
    if fitness is None or champion is None:
        return []
    events = [*_species_events(run, before)]
    events += [
        EvaluationFailed(generation=generation, genome=failure.genome, reason=failure.reason)
        for failure in run.progress.failures
    ]
    best = int(run.score.argmax())
    hidden, connections = run.size_of(run.pool.genome(best))
    sizes = np.bincount(species.member, minlength=len(species))
    events.append(
        Evaluated(
            generation=generation,
            best=float(fitness[best]),
            mean=float(fitness.mean()),
            stdev=float(fitness.std()),
            worst=float(fitness[int(run.score.argmin())]),
            best_genome=generation * run.config.population + best,
            best_hidden=hidden,
            best_connections=connections,
            species=dict(zip(species.ids.tolist(), sizes.tolist(), strict=True)),
            threshold=species.threshold,
            failures=len(run.progress.failures),
        )
    )
    if run.solved:
        events.append(Solved(generation=generation, genome=champion.id, fitness=champion.fitness))
    return events


def _species_events(run: Run[Any, Any], before: SpeciesTable) -> list[Event]:
    generation, species = run.generation, run.species
    known = set(before.ids.tolist()) if generation else set()
    alive = set(species.ids.tolist())
    ended: list[Event] = [
        SpeciesEnded(generation=generation, species=number, best=run.sign * best, age=generation - founded)
        for number, best, founded in zip(
            before.ids.tolist(), before.best.tolist(), before.founded.tolist(), strict=True
        )
        if number not in alive
    ]
    return [
        *ended,
        *(SpeciesFounded(generation=generation, species=s) for s in species.ids.tolist() if s not in known),
    ]
