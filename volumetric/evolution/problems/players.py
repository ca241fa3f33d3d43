"""The genomes of a generation as players: observations in, outputs out, step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import SpecError, VolumetricError
from volumetric.evolution.evaluate import Genomes
from volumetric.evolution.grids.genome import GridGenome, GridPool
from volumetric.evolution.linked import LinkedPool
from volumetric.evolution.pool import Pool
from volumetric.network import OUTPUT

if TYPE_CHECKING:
    from volumetric.evolution.problems.gym import Gym

F64Array = NDArray[np.float64]
IntArray = NDArray[np.int64]


class Players(Protocol):
    """Genomes that act in worlds of their own."""

    @property
    def linked(self) -> LinkedPool | None:
        """The genomes, if they are of nodes and connections."""
        ...

    def begin(self) -> None:
        """Forget the last episode."""
        ...

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        """Return outputs ``[genomes, outputs]`` for observations ``[genomes, inputs]``.

        Those of other genomes than `rows` mean nothing; a genome that fails puts out NaN.
        """
        ...


def players_of(pool: Genomes, problem: Gym) -> Players:
    """Return the genomes of a generation ready to play an environment.

    Raises
    ------
    SpecError : grids read something else, or these are genomes of another kind
    """
    if isinstance(pool, Pool):
        return LinkedPlayers(pool)
    if isinstance(pool, GridPool):
        shape, inputs = pool.genome(0).network.input_shape, problem.widths[0]
        if int(np.prod(shape)) != inputs:
            raise SpecError(
                f"the networks read {list(shape)}, observations of {problem.id} have {inputs} numbers",
                hint=f"let [network] make one with {inputs} inputs",
            )
        return GridPlayers(pool)
    raise SpecError(f"{problem.id} is played by genomes of nodes and connections, or by grids")


class LinkedPlayers:
    """Genomes of nodes and connections, which act together in one compiled call."""

    def __init__(self, pool: Pool) -> None:
        self.linked = LinkedPool(pool)
        self._state: F64Array | None = None
        self._outputs = np.zeros((len(pool), 1, pool.interface.outputs))

    def begin(self) -> None:
        self._state = self.linked.new_state() if self.linked.pool.interface.recurrent else None

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        self.linked.activate(observed[:, None, :], self._state, rows=rows, out=self._outputs)
        return self._outputs[:, 0]


class GridPlayers:
    """Whole networks, which act one after the other."""

    linked = None

    def __init__(self, pool: GridPool) -> None:
        self._members: tuple[GridGenome, ...] = pool.members
        network = self._members[0].network
        width = math.prod(size for size in network.shapes[network.taps[OUTPUT]] if size > 0)  # rows are not counted
        self._outputs = np.zeros((len(pool), width))
        self._states: list[Any] = []

    def begin(self) -> None:
        self._states = [genome.executable.new_state() for genome in self._members]

    def act(self, observed: F64Array, rows: IntArray) -> F64Array:
        for row in rows.tolist():
            genome = self._members[row]
            x = observed[row].reshape(1, *genome.network.input_shape).astype(np.float32)
            try:
                self._outputs[row] = genome.executable.forward(self._states[row], x, last_only=True).ravel()
            except (VolumetricError, ValueError, FloatingPointError):  # its own failure, whatever layers it has grown
                self._outputs[row] = np.nan
        return self._outputs
