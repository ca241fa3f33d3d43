"""Many copies of one environment that move together: as arrays where the environment can, else one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volumetric.evolution.problems import spaces
from volumetric.evolution.problems.spaces import ActionReader

if TYPE_CHECKING:
    from volumetric.evolution.problems.gym import Gym

F64Array = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class Worlds(Protocol):
    """Copies of one environment."""

    def reset(self, seeds: Sequence[int]) -> F64Array:
        """Begin an episode in each world from a seed of its own; return observations ``[worlds, inputs]``."""
        ...

    def step(self, outputs: F64Array, alive: BoolArray) -> tuple[F64Array, F64Array, BoolArray]:
        """Act by the outputs of the genomes ``[worlds, outputs]``; worlds that are not alive may stand still.

        Returns
        -------
        observations ``[worlds, inputs]``, rewards ``[worlds]``, and which episodes have ended
        """
        ...

    def close(self) -> None:
        """Free what the environments hold."""
        ...


def open_worlds(problem: Gym, count: int) -> Worlds:
    """Return `count` worlds of the kind that moves fastest."""
    if not problem.arguments and problem.max_steps is None:
        arrays = ArrayWorlds.of(problem, count)
        if arrays is not None:
            return arrays
    return SingleWorlds(problem, count)


class SingleWorlds:
    """One environment for each world."""

    def __init__(self, problem: Gym, count: int) -> None:
        self._worlds = [problem.make() for _ in range(count)]
        self._actions = ActionReader(problem.id, self._worlds[0].action_space)
        self._space = self._worlds[0].observation_space
        self._observed = np.zeros((count, problem.widths[0]))

    def reset(self, seeds: Sequence[int]) -> F64Array:
        for row, (world, seed) in enumerate(zip(self._worlds, seeds, strict=True)):
            self._observe(row, world.reset(seed=seed)[0])
        return self._observed.copy()

    def step(self, outputs: F64Array, alive: BoolArray) -> tuple[F64Array, F64Array, BoolArray]:
        rewards, ended = np.zeros(len(self._worlds)), np.zeros(len(self._worlds), np.bool_)
        actions = self._actions(outputs)
        for row in np.flatnonzero(alive).tolist():
            observed, reward, terminated, truncated, _ = self._worlds[row].step(actions[row])
            self._observe(row, observed)
            rewards[row], ended[row] = float(reward), terminated or truncated
        return self._observed.copy(), rewards, ended

    def close(self) -> None:
        for world in self._worlds:
            world.close()

    def _observe(self, row: int, observed: Any) -> None:
        self._observed[row] = spaces.observed(self._space, observed)


class ArrayWorlds:
    """One environment that moves all worlds at once, as Gymnasium's CartPole can.

    It draws the first states of all worlds from one stream. So that a world depends on its seed alone, the first state
    is set: each seed's is what the environment draws for a single world.
    """

    def __init__(self, name: str, worlds: Any, single: Any) -> None:
        self._worlds, self._single = worlds, single
        self._actions = ActionReader(name, worlds.single_action_space)
        self._starts: dict[int, F64Array] = {}

    @classmethod
    def of(cls, problem: Gym, count: int) -> ArrayWorlds | None:
        """Return the worlds, or None if the environment has no such form."""
        import gymnasium

        if problem.spec().vector_entry_point is None:
            return None
        mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
        made = [gymnasium.make_vec(problem.name, num_envs=n, vectorization_mode=mode) for n in (count, 1)]
        made[0].reset(seed=0)
        state = getattr(made[0].unwrapped, "state", None)
        if not isinstance(state, np.ndarray) or state.ndim != 2 or state.shape[1] != count:
            return None
        return cls(problem.id, *made)

    def reset(self, seeds: Sequence[int]) -> F64Array:
        self._worlds.reset(seed=0)
        state = self._worlds.unwrapped.state
        state[:] = self.bodies(seeds).T
        return state.T.astype(np.float32).astype(np.float64)  # observations are float32

    def bodies(self, seeds: Sequence[int]) -> F64Array:
        """Return the first state of each world, float64 ``[worlds, features]``."""
        for seed in dict.fromkeys(seeds):
            if seed not in self._starts:
                self._single.reset(seed=seed)
                self._starts[seed] = self._single.unwrapped.state[:, 0].copy()
        return np.stack([self._starts[seed] for seed in seeds])

    def step(self, outputs: F64Array, alive: BoolArray) -> tuple[F64Array, F64Array, BoolArray]:
        observed, rewards, terminated, truncated, _ = self._worlds.step(self._actions(outputs))
        return np.asarray(observed, np.float64), np.asarray(rewards, np.float64), terminated | truncated

    def close(self) -> None:
        self._worlds.close()
        self._single.close()
