"""Vectorised environments, and conversion of their spaces to inputs and outputs of networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from volumetric.base.errors import ShapeError, UnsupportedError

if TYPE_CHECKING:
    from volumetric.evolution.problems.gym import Gym

F64Array = NDArray[np.float64]


def input_width(name: str, space: Any) -> int:
    """Return the length of an observation of the environment `name`; see `observation_numbers`.

    Raises
    ------
    UnsupportedError : observations have no fixed length, as texts and sequences
    """
    from gymnasium import spaces

    if not space.is_np_flattenable:
        raise UnsupportedError(
            f"{name}: observations {space} have no fixed length",
            hint="use boxes, discrete, multi-discrete and multi-binary spaces, or tuples and dictionaries of them",
        )
    return int(spaces.flatdim(space))


def observation_numbers(space: Any, observation: Any) -> NDArray[Any]:
    """Return an observation as numbers ``[inputs]``: discrete values one-hot, parts of tuples in order."""
    from gymnasium import spaces

    return np.ravel(observation) if isinstance(space, spaces.Box) else np.asarray(spaces.flatten(space, observation))


def output_widths(name: str, space: Any) -> tuple[int, ...]:
    """Return the numbers of outputs that can choose an action of the environment `name`, the usual number first.

    Raises
    ------
    UnsupportedError : an action is neither discrete, binary nor a bounded box, nor a tuple or dictionary of these
    """
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return (1, 2) if space.n == 2 else (int(space.n),)
    if isinstance(space, spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        return (int(np.prod(space.shape)),)
    if isinstance(space, spaces.MultiBinary):
        return (int(np.prod(space.shape)),)
    if isinstance(space, spaces.MultiDiscrete):
        return (int(space.nvec.sum()),)
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return (sum(output_widths(name, part)[0] for part in _parts(space).values()),)
    raise UnsupportedError(
        f"{name}: actions {space} cannot be chosen by outputs",
        hint="use discrete, multi-discrete, multi-binary spaces, bounded boxes, or tuples and dictionaries of them",
    )


def actions_of(space: Any, outputs: F64Array) -> NDArray[Any] | list[Any]:
    """Return the action of each world from outputs ``[worlds, outputs]``, see `output_widths` for their number.

    With one output for two discrete actions the second is chosen if the output is above 0; otherwise the action of the
    largest output. Each part of a multi-discrete space has its own outputs. Binary actions are 1 if the output is above
    0. Continuous actions are outputs in -1 … 1 scaled to the range. Parts of tuples and dictionaries take their outputs
    in order.

    Returns
    -------
    An array for all worlds if the space is discrete or a box, else a list
    """
    from gymnasium import spaces

    worlds = len(outputs)
    if isinstance(space, spaces.Discrete):
        chosen = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
        return chosen.astype(np.int64) + int(space.start)
    if isinstance(space, spaces.Box):
        low, high = space.low.ravel(), space.high.ravel()
        stretched = low + (np.clip(outputs, -1, 1) + 1) / 2 * (high - low)
        return stretched.astype(space.dtype).reshape(worlds, *space.shape)
    if isinstance(space, spaces.MultiBinary):
        return list((outputs > 0).astype(space.dtype).reshape(worlds, *space.shape))
    if isinstance(space, spaces.MultiDiscrete):
        parts = np.split(outputs, np.cumsum(space.nvec.ravel())[:-1], axis=1)
        chosen = np.stack([part.argmax(axis=1) for part in parts], axis=1) + space.start.ravel()
        return list(chosen.astype(space.dtype).reshape(worlds, *space.shape))
    parts = _parts(space)
    cuts = np.cumsum([output_widths("", part)[0] for part in parts.values()])[:-1]
    columns = list(map(actions_of, parts.values(), np.split(outputs, cuts, axis=1)))
    if isinstance(space, spaces.Dict):
        return [dict(zip(parts, row, strict=True)) for row in zip(*columns, strict=True)]
    return list(zip(*columns, strict=True))


def _parts(space: Any) -> dict[Any, Any]:
    from gymnasium import spaces

    return dict(space.spaces) if isinstance(space, spaces.Dict) else dict(enumerate(space.spaces))


class ActionReader:
    """Converts outputs of genomes ``[worlds, outputs]`` to actions of an environment."""

    def __init__(self, name: str, space: Any) -> None:
        self._name, self._space, self._widths = name, space, output_widths(name, space)

    def __call__(self, outputs: F64Array) -> Any:
        """Return the action of each world, see `actions_of`; raise `ShapeError` for another number of outputs."""
        if outputs.shape[1] not in self._widths:
            raise ShapeError(
                f"{self._name} takes {' or '.join(map(str, self._widths))} outputs, but genomes have {outputs.shape[1]}"
            )
        return actions_of(self._space, outputs)


BoolArray = NDArray[np.bool_]


class Worlds(Protocol):
    """Copies of one environment."""

    def reset(self, seeds: Sequence[int]) -> F64Array:
        """Begin an episode in each world from its seed; return observations ``[worlds, inputs]``."""
        ...

    def step(self, outputs: F64Array, alive: BoolArray) -> tuple[F64Array, F64Array, BoolArray]:
        """Step with the outputs of the genomes ``[worlds, outputs]``; worlds that are not alive may be skipped.

        Returns
        -------
        observations ``[worlds, inputs]``, rewards ``[worlds]``, and flags of ended episodes
        """
        ...

    def close(self) -> None:
        """Free the environments."""
        ...


def open_worlds(problem: Gym, count: int) -> Worlds:
    """Return `count` worlds of the fastest available kind."""
    if not problem.arguments and problem.max_steps is None and problem.entry is None:
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
        """Begin an episode in each world; return first observations, float64 ``[worlds, features]``."""
        for row, (world, seed) in enumerate(zip(self._worlds, seeds, strict=True)):
            self._observe(row, world.reset(seed=seed)[0])
        return self._observed.copy()

    def step(self, outputs: F64Array, alive: BoolArray) -> tuple[F64Array, F64Array, BoolArray]:
        """Step the worlds in `alive`; return observations ``[worlds, features]``, rewards and ends ``[worlds]``."""
        rewards, ended = np.zeros(len(self._worlds)), np.zeros(len(self._worlds), np.bool_)
        actions = self._actions(outputs)
        for row in np.flatnonzero(alive).tolist():
            observed, reward, terminated, truncated, _ = self._worlds[row].step(actions[row])
            self._observe(row, observed)
            rewards[row], ended[row] = float(reward), terminated or truncated
        return self._observed.copy(), rewards, ended

    def close(self) -> None:
        """Close all environments."""
        for world in self._worlds:
            world.close()

    def _observe(self, row: int, observation: Any) -> None:
        self._observed[row] = observation_numbers(self._space, observation)


class ArrayWorlds:
    """One environment that steps all worlds at once, as Gymnasium's vectorised CartPole.

    It draws the first states of all worlds from one stream. To make a world depend only on its seed, its first state is
    set to that of a single environment with this seed.
    """

    def __init__(self, name: str, worlds: Any, single: Any) -> None:
        self._worlds, self._single = worlds, single
        self._actions = ActionReader(name, worlds.single_action_space)
        self._starts: dict[int, F64Array] = {}

    @classmethod
    def of(cls, problem: Gym, count: int) -> ArrayWorlds | None:
        """Return the worlds, or None if the environment has no vectorised form."""
        import gymnasium

        if problem.spec().vector_entry_point is None:
            return None
        mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
        worlds = [gymnasium.make_vec(problem.name, num_envs=n, vectorization_mode=mode) for n in (count, 1)]
        worlds[0].reset(seed=0)
        state = getattr(worlds[0].unwrapped, "state", None)
        if not isinstance(state, np.ndarray) or state.ndim != 2 or state.shape[1] != count:
            return None
        return cls(problem.id, *worlds)

    def reset(self, seeds: Sequence[int]) -> F64Array:
        """Begin an episode in each world; return first observations, float64 ``[worlds, features]``."""
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
        """Step all worlds; return observations ``[worlds, features]``, rewards and ends ``[worlds]``."""
        observed, rewards, terminated, truncated, _ = self._worlds.step(self._actions(outputs))
        return np.asarray(observed, np.float64), np.asarray(rewards, np.float64), terminated | truncated

    def close(self) -> None:
        """Close both environments."""
        self._worlds.close()
        self._single.close()
