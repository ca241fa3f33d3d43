"""Spaces of environments: observations as the numbers that a network reads, outputs as the actions that it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.errors import ShapeError, UnsupportedError

F64Array = NDArray[np.float64]


def input_width(name: str, space: Any) -> int:
    """Return how many numbers an observation of the environment `name` has; see `observed`.

    Raises
    ------
    UnsupportedError : observations have no fixed number of numbers, as texts and sequences
    """
    from gymnasium import spaces

    if not space.is_np_flattenable:
        raise UnsupportedError(
            f"{name}: observations {space} are not of a fixed number of numbers",
            hint="boxes, discrete, multi-discrete and multi-binary spaces, and tuples and dictionaries of them are",
        )
    return int(spaces.flatdim(space))


def observed(space: Any, observation: Any) -> NDArray[Any]:
    """Return an observation as numbers ``[inputs]``: discrete ones one-hot, parts of tuples in order."""
    from gymnasium import spaces

    return np.ravel(observation) if isinstance(space, spaces.Box) else np.asarray(spaces.flatten(space, observation))


def output_widths(name: str, space: Any) -> tuple[int, ...]:
    """Return how many outputs can choose an action of the environment `name`, the usual number first.

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
        hint="discrete, multi-discrete, multi-binary spaces, bounded boxes, and tuples and dictionaries of them can",
    )


def actions_of(space: Any, outputs: F64Array) -> NDArray[Any] | list[Any]:
    """Return the actions that outputs ``[worlds, outputs]``, as many as `output_widths` says, choose, one a world.

    Of two discrete ones the second where one output is above 0; of more, or by two outputs, that of the largest; each
    of several by outputs of its own. Binary ones are 1 where the output is above 0. Continuous ones are
    outputs in -1 … 1 stretched over the range. Parts of tuples and dictionaries take their outputs in order.

    Returns
    -------
    An array of all worlds where the space is discrete or a box, else a list
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
    """Turns outputs of genomes ``[worlds, outputs]`` into actions of the space of an environment."""

    def __init__(self, name: str, space: Any) -> None:
        self._name, self._space, self._widths = name, space, output_widths(name, space)

    def __call__(self, outputs: F64Array) -> Any:
        """Return the action of each world, see `actions_of`; raise `ShapeError` for another number of outputs."""
        if outputs.shape[1] not in self._widths:
            raise ShapeError(
                f"{self._name} takes {' or '.join(map(str, self._widths))} outputs, genomes have {outputs.shape[1]}"
            )
        return actions_of(self._space, outputs)
