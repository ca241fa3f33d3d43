"""State: what a layer keeps of a sequence from one call to the next, declared as data."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError, UnsupportedError

StateKind = Literal["rows", "fixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateSpec:
    """One state of a layer.

    Attributes
    ----------
    name : path below the layer, such as ``"k"``, or ``"0/h"`` inside a container
    shape : of one row where the kind is ``"rows"``, else of the whole
    kind : ``"rows"`` holds a row for each row of the sequence and grows with it, as keys and values do; going back is
        to forget rows. ``"fixed"`` holds one value, which every row replaces, as a recurrent cell does; going back is
        to a copy made before
    window : rows states: how many of the last rows will ever be read again; None: all
    dtype : what its numbers are. A device may keep float32 in another precision, where its options say so
    start : value of all numbers of a fixed state when a sequence starts; only counts of clocks start with others than 0

    A sequence starts with no rows.
    """

    name: str
    shape: Shape
    kind: StateKind
    window: int | None = None
    dtype: Literal["float32", "int32"] = "float32"
    start: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.kind not in ("rows", "fixed"):
            raise SpecError(f"state {self.name!r}: unknown kind {self.kind!r}", hint="one of rows, fixed")
        if self.window is not None and self.kind != "rows":
            raise SpecError(f"state {self.name!r}: only states of rows have a window")

    @property
    def size(self) -> int:
        """Numbers in a row, or in the whole."""
        return math.prod(self.shape)

    def below(self, path: str) -> StateSpec:
        """Return the same state with a longer path, ``"path/name"``."""
        return dataclasses.replace(self, name=f"{path}/{self.name}")


def bounded(states: Iterable[StateSpec], where: str) -> tuple[StateSpec, ...]:
    """Return states of fixed size that hold what a sequence needs of `states`, for what has no room that grows.

    Of rows with a window these are the rows before the next one that it may see, the last of them last, and
    ``"place"``: how many rows of the sequence there have been, as far as it matters.

    Parameters
    ----------
    where : who keeps them, for the error

    Raises
    ------
    UnsupportedError : rows have no window
    """
    specs: dict[str, StateSpec] = {}
    for state in states:
        if state.kind == "fixed":
            specs[state.name] = state
            continue
        if state.window is None:
            raise UnsupportedError(
                f"{where} keeps {state.name} of every row of its sequence, and there is no room that grows",
                hint="window= bounds how many rows before it a row of attention sees, and so what is kept",
            )
        shape = (max(state.window - 1, 1), *state.shape)
        specs[state.name] = dataclasses.replace(state, kind="fixed", shape=shape, window=None)
        place = "/".join((*state.name.split("/")[:-1], "place"))
        specs[place] = StateSpec(name=place, shape=(1,), kind="fixed")
    return tuple(specs.values())


def is_sequence(*inputs: Shape) -> bool:
    """Whether a layer that reads values of these shapes sees the rows of a call as one sequence.

    With an axis between rows and features every row is a sample that carries a sequence of its own, and nothing is
    kept from call to call. No shapes at all mean rows of features.
    """
    return not inputs or len(inputs[0]) <= 2


def no_resets(layer: str) -> UnsupportedError:
    """Error of a layer that looks at other rows, or at its place, and takes no resets."""
    return UnsupportedError(
        f"{layer} cannot begin a new sequence inside of a call, nor go on with several side by side",
        hint="give each sequence a call of its own; recurrent layers, attention and state-space layers take resets",
    )
