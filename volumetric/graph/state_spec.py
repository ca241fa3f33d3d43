"""State: data that a layer stores of a sequence between calls, declared as data."""

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
    shape : of one row if the kind is ``"rows"``, else of the whole state
    kind : ``"rows"`` holds a row for each row of the sequence and grows with it, like keys and values; a rollback drops
        rows. ``"fixed"`` holds one value, which every row replaces, like the state of a recurrent cell; a rollback
        restores an earlier copy
    window : for ``"rows"``: number of last rows that can be read again; None: all
    dtype : of its elements; a device may store float32 in another precision if its options say so
    start : initial value of all elements of a fixed state; only counts of clocks start with values other than 0

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
            raise SpecError(f"state {self.name!r}: only states of kind 'rows' have a window")

    @property
    def size(self) -> int:
        """Number of elements of a row, or of the whole state."""
        return math.prod(self.shape)

    def with_prefix(self, path: str) -> StateSpec:
        """Return the state with the name ``"path/name"``."""
        return dataclasses.replace(self, name=f"{path}/{self.name}")


def bounded_states(states: Iterable[StateSpec], where: str) -> tuple[StateSpec, ...]:
    """Return states of fixed size that replace `states`, for callers whose buffers cannot grow.

    A rows state with a window becomes a buffer of the earlier rows that the next row may see, oldest first, and
    ``"place"``: the number of rows of the sequence so far, as far as it matters.

    Parameters
    ----------
    where : the layer that has the states, for the error

    Raises
    ------
    UnsupportedError : a rows state has no window
    """
    specs: dict[str, StateSpec] = {}
    for state in states:
        if state.kind == "fixed":
            specs[state.name] = state
            continue
        if state.window is None:
            raise UnsupportedError(
                f"{where} stores {state.name} of every row of its sequence, but its buffers cannot grow",
                hint="set window= to bound how many earlier rows a row of attention sees",
            )
        shape = (max(state.window - 1, 1), *state.shape)
        specs[state.name] = dataclasses.replace(state, kind="fixed", shape=shape, window=None)
        place = "/".join((*state.name.split("/")[:-1], "place"))
        specs[place] = StateSpec(name=place, shape=(1,), kind="fixed")
    return tuple(specs.values())


def is_sequence(*inputs: Shape) -> bool:
    """Return whether a layer that reads values of these shapes sees the rows of a call as one sequence.

    With an axis between rows and features, every row is a sample with a separate sequence, and no state is stored
    between calls. Without `inputs`, the values are rows of features.
    """
    return not inputs or len(inputs[0]) <= 2


def resets_unsupported(layer: str) -> UnsupportedError:
    """Return the error of a layer that reads other rows or positions and does not support resets."""
    return UnsupportedError(
        f"{layer} cannot start a new sequence within a call, nor continue several sequences in one call",
        hint="pass each sequence in a separate call; recurrent layers, attention and state-space layers take resets",
    )
