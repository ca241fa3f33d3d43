"""State: what a layer keeps of a sequence from one call to the next, declared as data."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError, UnsupportedError

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

    A sequence starts with no rows and with zeros.
    """

    name: str
    shape: Shape
    kind: StateKind
    window: int | None = None
    dtype: Literal["float32", "int32"] = "float32"

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


def is_sequence(*inputs: Shape) -> bool:
    """Whether a layer that reads values of these shapes sees the rows of a call as one sequence.

    With an axis between rows and features every row is a sample that carries a sequence of its own, and nothing is
    kept from call to call. No shapes at all mean rows of features.
    """
    return not inputs or len(inputs[0]) <= 2


def check_resets(resets: Array, lead: Shape) -> None:
    """Raise `ShapeError` unless `resets` are 0 and 1, of the shape ``[*lead, T]``."""
    if len(resets.shape) != len(lead) + 1 or resets.shape[:-1] != lead:
        want = ", ".join([*map(str, lead), "T"])
        raise ShapeError(f"resets: expected shape [{want}], got {list(resets.shape)}")
    if not np.isin(resets, (0, 1)).all():
        found = resets[~np.isin(resets, (0, 1))].flat[0]
        raise ShapeError(
            f"resets: expected 0 and 1, got {found}", hint="1 marks a row with which a new sequence begins"
        )


def refuse_resets(kind: str, memory: Memory | None) -> None:
    """Raise `UnsupportedError` where a memory has resets or several sequences, for a layer that takes neither."""
    if memory is not None and (memory.resets is not None or memory.streams is not None):
        raise no_resets(kind)


def no_resets(layer: str) -> UnsupportedError:
    """Error of a layer that looks at other rows, or at its place, and takes no resets."""
    return UnsupportedError(
        f"{layer} cannot begin a new sequence inside of a call, nor go on with several side by side",
        hint="give each sequence a call of its own; recurrent layers take resets",
    )


class Memory:
    """The states of one layer within a sequence, as its NumPy forward reads and replaces them.

    Arrays are replaced and never written to, so a copy of the dictionary is a copy of the states.

    Parameters
    ----------
    position : rows that came before this call
    values : key → rows held so far, or the value of a fixed state
    path : what stands before a state's name in its key
    streams : None: of one sequence, whose rows are the first axis of what a layer reads. A number: of so many
        sequences side by side; a layer reads ``[streams, T, …]`` and each state has an axis more, the first
    resets : ``[T]``, or ``[streams, T]``: 1 where a new sequence begins with a row, else 0. All states of a sequence
        are forgotten before the row is computed, so that rows from there on know nothing of those before

    Raises
    ------
    ShapeError : `resets` have other axes, or hold something besides 0 and 1
    """

    __slots__ = ("_path", "position", "resets", "streams", "values")

    def __init__(
        self,
        position: int = 0,
        values: dict[str, Array] | None = None,
        path: str = "",
        *,
        streams: int | None = None,
        resets: Array | None = None,
    ) -> None:
        self.position = position
        self.values: dict[str, Array] = {} if values is None else values
        self.streams = streams
        self.resets = resets
        self._path = path
        if resets is not None:
            check_resets(resets, () if streams is None else (streams,))

    def child(self, name: str) -> Memory:
        """Return the memory of a layer inside of this one."""
        path = f"{self._path}{name}/"
        return Memory(self.position, self.values, path, streams=self.streams, resets=self.resets)

    def covers(self, shape: Shape) -> bool:
        """Whether the rows of values of this shape are those of the sequences; else they are samples of their own."""
        return is_sequence(shape) if self.streams is None else len(shape) == 3 and shape[0] == self.streams

    def keep(self, shape: Shape) -> Array | None:
        """Return 0 where a sequence forgets before a row, else 1, for values of a shape; None: nowhere.

        Raises
        ------
        ShapeError : the resets are of another number of rows
        """
        if self.resets is None:
            return None
        if self.resets.shape != shape[:-1]:
            got, want = list(self.resets.shape), list(shape[:-1])
            raise ShapeError(f"resets: expected one for each row, shape {want}, got {got}")
        return 1 - self.resets

    def append(self, name: str, new: Array) -> Array:
        """Put `new` behind the rows held before this call; return all of them."""
        key = self._path + name
        held = self._held(name)[: self.position] if self.position else new[:0]
        self.values[key] = np.concatenate([held, new])
        return self.values[key]

    def read(self, name: str, shape: Shape, dtype: np.dtype) -> Array:
        """Return the value of a fixed state: zeros at the start of a sequence."""
        if not self.position:
            return np.zeros(shape, dtype)
        held = self._held(name)
        if held.shape != shape:
            raise ShapeError(f"the memory holds {name} of shape {list(held.shape)}, this call needs {list(shape)}")
        return held

    def write(self, name: str, value: Array) -> None:
        """Replace the value of a fixed state."""
        self.values[self._path + name] = value

    def _held(self, name: str) -> Array:
        key = self._path + name
        if key not in self.values:
            raise SpecError(f"the memory is at row {self.position} but does not hold {key}")
        return self.values[key]


def covered_by(memory: Memory | None, shape: Shape) -> Memory | None:
    """Return the memory where values of this shape are rows of its sequences; else None: samples of their own."""
    return memory if memory is not None and memory.covers(shape) else None
