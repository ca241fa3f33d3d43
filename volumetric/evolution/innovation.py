"""Historical markings: the same structural change in the same generation gets the same numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.config import GenomeConfig
from volumetric.evolution.genome import Genome

_EVENTS_PER_CHILD = 4  # a split makes a node and two connections, an added connection one more


def _empty_table(events: int) -> NDArray[np.int64]:
    rows = 1 << max(4, (2 * events).bit_length())
    return np.full((rows, 3), -1, np.int64)


@dataclass(slots=True, eq=False)
class Innovations:
    """Numbers of nodes and connections given so far, and the events of the current generation.

    Markings match within a generation, as in the NEAT paper. Across generations the same change gets a new number:
    two lines that found it at different times have different histories.

    Attributes
    ----------
    counters : int64 (next node id, next innovation number, events in the table)
    table : hash table of the generation's events, see ``volumetric.kernels.cpu.mutation.mark``
    """

    counters: NDArray[np.int64]
    table: NDArray[np.int64] = field(default_factory=lambda: _empty_table(0))

    @staticmethod
    def after_first(config: GenomeConfig) -> Innovations:
        """Return the state once the first genomes, which all have the same structure, are made."""
        inputs, outputs = config.interface.inputs, config.interface.outputs
        connections = inputs * outputs if config.initial_connections == "full" else 0
        return Innovations(np.array([inputs + outputs, connections, 0], np.int64))

    @staticmethod
    def after(genome: Genome) -> Innovations:
        """Return the state after a genome from elsewhere: its numbers are taken."""
        nodes = max(genome.nodes["id"].max(initial=0) + 1, genome.interface.inputs + genome.interface.outputs)
        return Innovations(np.array([nodes, genome.connections["innovation"].max(initial=-1) + 1, 0], np.int64))

    def begin_generation(self, children: int) -> None:
        """Forget the events of the last generation and make room for those of `children` mutations."""
        self.table = _empty_table(_EVENTS_PER_CHILD * children)
        self.counters[2] = 0

    def reserve(self, children: int) -> None:
        """Make room for `children` more mutations within the generation."""
        from volumetric.kernels.cpu.mutation import rehash

        events = int(self.counters[2]) + _EVENTS_PER_CHILD * children
        if 2 * events > len(self.table):
            table = _empty_table(2 * events)
            rehash(self.table, table)
            self.table = table
