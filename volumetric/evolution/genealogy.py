"""Events with the genomes of a generation: who descends from whom, and how the best genome is built.

Only reporters whose attribute `requests` names these events get them, as ``History(genealogy=True)``.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.genes import ACTIVATIONS, AGGREGATIONS
from volumetric.evolution.genome import Genome

if TYPE_CHECKING:
    from volumetric.evolution.grids.grid_genome import GridGenome
    from volumetric.evolution.species import Offspring
    from volumetric.network.wiring import Source

KINDS: Final = ("first", "clone", "mutation", "crossover")
"""How a genome was born, by code: without known parents, as a copy, from one parent, or from two."""
REQUESTS: Final = ("Births", "BestGenome")
"""Names of the events of this module."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Births:
    """The genomes of an evaluated generation, and their parents.

    Attributes
    ----------
    generation : from 0
    first : id of the first genome; the others follow
    parents : int64 [genomes, 2]; ids of the fitter parent and of the other one, -1 for none
    kinds : uint8 [genomes]; codes of `KINDS`
    species : int64 [genomes]; id of each genome's species, -1 in a run without species
    fitness : float64 [genomes]; the first objective of a run with several
    sizes : int64 [genomes, 2]; hidden nodes and enabled connections, or layers and links of grids
    """

    event: ClassVar[str] = "Births"
    detail: ClassVar[int] = 2
    on_request: ClassVar[bool] = True

    generation: int
    first: int
    parents: NDArray[np.int64]
    kinds: NDArray[np.uint8]
    species: NDArray[np.int64]
    fitness: NDArray[np.float64]
    sizes: NDArray[np.int64]

    def __str__(self) -> str:
        counts = np.bincount(self.kinds, minlength=len(KINDS)).tolist()
        born = ", ".join(f"{count} by {kind}" for kind, count in zip(KINDS, counts, strict=True) if count)
        return f"generation {self.generation}: {len(self.kinds)} genomes, {born}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BestGenome:
    """The structure of the best genome of a generation, if it is not that of the generation before.

    Attributes
    ----------
    generation, genome, fitness : where it was best, its id and its fitness (its first objective, if there are several)
    nodes : (id, role, description, bias or None) of each; roles are "input", "hidden" and "output". Nodes of a grid are
        its layers
    edges : (source, target, weight or None, whether enabled) of each
    """

    event: ClassVar[str] = "BestGenome"
    detail: ClassVar[int] = 2
    on_request: ClassVar[bool] = True

    generation: int
    genome: int
    fitness: float
    nodes: tuple[tuple[int, str, str, float | None], ...]
    edges: tuple[tuple[int, int, float | None, bool], ...]

    def __str__(self) -> str:
        return (
            f"generation {self.generation}: best genome {self.genome} with {len(self.nodes)} nodes and "
            f"{len(self.edges)} connections"
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Parentage:
    """Ids of the parents of a generation.

    Attributes
    ----------
    parents : int64 [genomes, 2]; -1 for none
    kinds : uint8 [genomes]; codes of `KINDS`
    """

    parents: NDArray[np.int64]
    kinds: NDArray[np.uint8]

    @staticmethod
    def none(genomes: int) -> Parentage:
        """Return that of a generation without parents."""
        return Parentage(parents=np.full((genomes, 2), -1, np.int64), kinds=np.zeros(genomes, np.uint8))

    @staticmethod
    def of(offspring: Offspring, ids: NDArray[np.int64]) -> Parentage:
        """Return that of children of genomes with these ids."""
        rows = offspring.parents[:, :2]
        alone = rows[:, 1] < 0
        return Parentage(
            parents=np.where(rows < 0, -1, ids[rows]),
            kinds=np.where(alone, np.where(offspring.mutates > 0, 2, 1), 3).astype(np.uint8),
        )


class GenealogyEvents:
    """What a run keeps for the events of this module.

    Attributes
    ----------
    parentage : of the current generation; None for one without parents
    """

    def __init__(self) -> None:
        self.parentage: Parentage | None = None
        self._last_best: Any = None

    def begin(self) -> None:
        """Forget what was reported, because other reporters follow."""
        self._last_best = None

    def of_generation(
        self,
        requests: Set[str],
        generation: int,
        fitness: NDArray[np.float64],
        species: NDArray[np.int64],
        sizes: Callable[[], NDArray[np.int64]],
        best: Callable[[], tuple[Any, int, float]],
    ) -> list[Births | BestGenome]:
        """Return the requested events of an evaluated generation.

        Parameters
        ----------
        fitness, species : as in `Births`
        sizes : returns the sizes of `Births`
        best : returns the best genome, its id and its fitness
        """
        events: list[Births | BestGenome] = []
        if "Births" in requests:
            parentage, count = self.parentage or Parentage.none(len(fitness)), len(fitness)
            events.append(
                Births(
                    generation=generation, first=generation * count, parents=parentage.parents, kinds=parentage.kinds,
                    species=species, fitness=fitness, sizes=sizes(),
                )
            )  # fmt: skip
        if "BestGenome" in requests:
            genome, id, value = best()
            if self._last_best is None or genome != self._last_best:
                self._last_best = genome
                event = best_genome(genome, generation=generation, id=id, fitness=value)
                events += [] if event is None else [event]
        return events


def best_genome(genome: Any, *, generation: int, id: int, fitness: float) -> BestGenome | None:
    """Return the structure of a genome as an event; None for a kind of genome that is not of this package."""
    from volumetric.evolution.grids.grid_genome import GridGenome  # loads devices, which classic genomes do not need

    if isinstance(genome, Genome):
        nodes, edges = _structure(genome)
    elif isinstance(genome, GridGenome):
        nodes, edges = _grid_structure(genome)
    else:
        return None
    return BestGenome(generation=generation, genome=id, fitness=fitness, nodes=tuple(nodes), edges=tuple(edges))


def _structure(genome: Genome) -> tuple[list[Any], list[Any]]:
    inputs, outputs = genome.interface.inputs, genome.interface.outputs
    nodes: list[Any] = [(i, "input", f"input {i}", None) for i in range(inputs)]
    for place, (id, activation, aggregation, bias) in enumerate(genome.nodes.tolist()):
        role = "output" if place < outputs else "hidden"
        gathers = "" if AGGREGATIONS[aggregation] == "sum" else f" of {AGGREGATIONS[aggregation]}"
        nodes.append((id, role, f"{ACTIVATIONS[activation]}{gathers}", bias))
    return nodes, [gene[1:] for gene in genome.connections.tolist()]


def _grid_structure(genome: GridGenome) -> tuple[list[Any], list[Any]]:
    """Return layers by their markings, which stay the same while a genome grows; inputs are below 0."""
    network = genome.network
    ports = {name: -1 - i for i, name in enumerate(network.ports)}
    ends = genome.markings
    last = network.wires[-1].coord if network.wires else None
    nodes: list[Any] = [
        (ports[name], "input", f"{name} of {'×'.join(map(str, port.shape))}", None)
        for name, port in network.ports.items()
    ]
    edges: list[Any] = []

    def end(source: Source) -> int | None:
        return ports.get(source.port) if source.coord is None else ends.get(source.coord)

    for wire in network.wires:
        spec = network.layers[wire.coord]
        off = " (off)" if wire.identity else ""
        role = "output" if wire.coord == last else "hidden"
        nodes.append((ends[wire.coord], role, f"{spec.kind} at {wire.coord}{off}", None))
        for source in (*wire.inputs, *(() if wire.skip is None else (wire.skip,))):
            start = end(source)
            if start is not None:
                edges.append((start, ends[wire.coord], None, True))
    return nodes, list(dict.fromkeys(edges))
