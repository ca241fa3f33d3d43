"""Events of an evolution run as one row for each generation, for pages of the scope."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.evolution.genealogy import BestGenome, Births
from volumetric.evolution.reporters import (
    Evaluated,
    EvaluationFailed,
    Event,
    FrontEvaluated,
    Solved,
    SpeciesEnded,
    SpeciesFounded,
)

MOST_GENES: Final = 4_000
"""Nodes and edges of a genome on a page; a larger one is told by its size."""
_FRONT: Final = 500
"""Points of a front on a page."""


class EvolutionRows:
    """Rows of generations, in order. Any thread may add and read.

    A row is a dict: ``generation``, numbers of `Evaluated`, ``species`` (ids, sizes, best), and where a run reports
    them ``births`` (ids, parents, kinds, species, fitness, sizes), ``champion`` and ``front``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[dict[str, Any]] = []
        self._births: Births | None = None
        self._best: BestGenome | None = None
        self._best_size: tuple[int, int] | None = None
        self._ended: dict[int, float] = {}
        self.solved: str = ""

    def __len__(self) -> int:
        with self._lock:
            return len(self._rows)

    def rows(self, start: int = 0) -> list[dict[str, Any]]:
        """Return the rows from a place on."""
        with self._lock:
            return self._rows[start:]

    def ended_species(self) -> dict[int, float]:
        """Return the best fitness of the species that ended, by id."""
        with self._lock:
            return dict(self._ended)

    def drop_from(self, generation: int) -> None:
        """Forget the rows of a generation and of all later ones."""
        with self._lock:
            self._rows = [row for row in self._rows if row["generation"] < generation]

    def add_all(self, events: Iterable[Event]) -> None:
        """Add events in the order in which a run reports them."""
        for event in events:
            self.add(event)

    def add(self, event: Event) -> bool:
        """Add an event; return whether it completed a row. A generation that comes again replaces the earlier ones."""
        match event:
            case Births():
                self._births = event
            case BestGenome():
                self._best = event
            case SpeciesEnded():
                with self._lock:
                    self._ended[event.species] = event.best
            case Solved():
                self.solved = str(event)
            case Evaluated() | FrontEvaluated():
                self._close_row(event)
                return True
            case EvaluationFailed() | SpeciesFounded():
                pass
        return False

    def _close_row(self, event: Evaluated | FrontEvaluated) -> None:
        births = self._births if self._births is not None and self._births.generation == event.generation else None
        row = _front_row(event, births) if isinstance(event, FrontEvaluated) else _row(event, births)
        if births is not None:
            row["births"] = _births_row(births)
            sizes = births.sizes.mean(axis=0)
            row |= {"meanHidden": float(sizes[0]), "meanConnections": float(sizes[1])}
        if self._best is not None:
            row["champion"] = champion_row(self._best)
            row["sizeNames"] = size_names(self._best)
            self._best_size = sum(node[1] == "hidden" for node in self._best.nodes), sum(e[3] for e in self._best.edges)
        if self._best_size is not None and "hidden" not in row:
            row |= {"hidden": self._best_size[0], "connections": self._best_size[1]}
        self._births = self._best = None
        with self._lock:
            if self._rows and self._rows[-1]["generation"] >= event.generation:
                self._rows = [one for one in self._rows if one["generation"] < event.generation]
            self._rows.append(row)


def _row(event: Evaluated, births: Births | None) -> dict[str, Any]:
    ids = np.array(list(event.species), np.int64)
    best = np.full(len(ids), np.nan)
    if births is not None and len(ids):
        lower = event.best < event.worst  # the run minimises
        for place, species in enumerate(ids.tolist()):
            members = births.fitness[births.species == species]
            best[place] = np.nan if members.size == 0 else members.min() if lower else members.max()
    return {
        "generation": event.generation,
        "best": event.best,
        "mean": event.mean,
        "stdev": event.stdev,
        "worst": event.worst,
        "bestGenome": event.best_genome,
        "hidden": event.best_hidden,
        "connections": event.best_connections,
        "threshold": event.threshold,
        "failures": event.failures,
        "species": {
            "ids": ids.astype(np.int32),
            "sizes": np.array(list(event.species.values()), np.int32),
            "best": best.astype(np.float32),
        },
    }


def _front_row(event: FrontEvaluated, births: Births | None) -> dict[str, Any]:
    """Return the row of a run with several objectives: the best of the first one, and the front."""
    points = np.array(event.front, np.float64)
    chosen = np.unique(np.linspace(0, len(points) - 1, min(len(points), _FRONT)).round().astype(np.int64))
    top = int(points[:, 0].argmax())
    row: dict[str, Any] = {
        "generation": event.generation,
        "best": float(points[top, 0]),
        "bestGenome": event.genomes[top],
        "failures": event.failures,
        "front": {"points": points[chosen], "genomes": np.array(event.genomes, np.int64)[chosen].astype(np.int32)},
        "frontSize": len(points),
    }
    if births is not None:
        fitness = births.fitness
        row |= {"mean": float(fitness.mean()), "stdev": float(fitness.std()), "worst": float(fitness.min())}
    return row


def _births_row(births: Births) -> dict[str, Array]:
    return {
        "ids": (births.first + np.arange(len(births.kinds))).astype(np.int32),
        "parents": births.parents.astype(np.int32),
        "kinds": births.kinds,
        "species": births.species.astype(np.int32),
        "fitness": births.fitness.astype(np.float32),
        "sizes": births.sizes.clip(0, 65535).astype(np.uint16),
    }


def champion_row(best: BestGenome) -> Mapping[str, Any]:
    """Return a genome's structure as JSON data; of one that is too large to draw, only its size."""
    count = len(best.nodes) + len(best.edges)
    about = {
        "generation": best.generation, "genome": best.genome, "fitness": best.fitness,
        "genes": count, "nodeCount": len(best.nodes), "edgeCount": len(best.edges),
    }  # fmt: skip
    if count > MOST_GENES:
        return {**about, "nodes": [], "edges": []}
    return {
        **about,
        "nodes": [[id, role, description, _rounded(bias)] for id, role, description, bias in best.nodes],
        "edges": [[source, target, _rounded(weight), int(on)] for source, target, weight, on in best.edges],
    }


def size_names(best: BestGenome | None) -> list[str]:
    """Return what the sizes of genomes count: layers and links where edges have no weight."""
    grids = best is not None and best.edges and all(edge[2] is None for edge in best.edges)
    return ["layers", "links"] if grids else ["hidden", "connections"]


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.7g}")
