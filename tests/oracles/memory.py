"""In NumPy: state: what a layer keeps of a sequence from one call to the next, declared as data."""

from __future__ import annotations

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.state_spec import is_sequence, resets_unsupported


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
        raise resets_unsupported(kind)


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
    bounded : states of rows have a fixed size, as `bounded` declares it

    Raises
    ------
    ShapeError : `resets` have other axes, or hold something besides 0 and 1
    """

    __slots__ = ("_path", "bounded", "position", "resets", "streams", "values")

    def __init__(
        self,
        position: int = 0,
        values: dict[str, Array] | None = None,
        path: str = "",
        *,
        streams: int | None = None,
        resets: Array | None = None,
        bounded: bool = False,
    ) -> None:
        self.position = position
        self.values: dict[str, Array] = {} if values is None else values
        self.streams = streams
        self.resets = resets
        self.bounded = bounded
        self._path = path
        if resets is not None:
            check_resets(resets, () if streams is None else (streams,))

    def child(self, name: str) -> Memory:
        """Return the memory of a layer inside of this one."""
        path = f"{self._path}{name}/"
        return Memory(self.position, self.values, path, streams=self.streams, resets=self.resets, bounded=self.bounded)

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
        axis = 0 if self.streams is None else 1
        held = self._held(name) if self.position else new
        held = held[(slice(None),) * axis + (slice(self.position),)]
        self.values[key] = np.concatenate([held, new], axis)
        return self.values[key]

    @property
    def restarts(self) -> bool:
        """Whether a sequence may have begun elsewhere than at the first row of all."""
        return self.resets is not None or self._counts

    @property
    def _counts(self) -> bool:
        """Whether rows of sequences are counted apart from those of all calls."""
        return self.bounded or (self.position > 0 and self._path + "place" in self.values)

    def places(self, shape: Shape, *, wraps: int | None = None) -> Array:
        """Return where the rows of values of a shape stand in their sequences, int64 ``[T]`` or ``[streams, T]``.

        How many rows the sequences have after these is kept as the state ``"place"``, where it is not the position.

        Parameters
        ----------
        wraps : multiples of it may be left out of what is kept in bounded states
        """
        *lead, length = shape[:-1]
        rows, keep, counts = np.arange(length), self.keep(shape), self._counts
        held = self.read("place", (*lead, 1), np.dtype(np.float32)) if counts else np.full((*lead, 1), self.position)
        found = held.astype(np.int64) + rows
        if keep is not None and length:
            begun = np.maximum.accumulate(np.where(keep == 0, rows, -1), axis=-1)
            found = np.where(begun < 0, found, rows - begun)
        if length and (counts or keep is not None):
            after = found[..., -1:] + 1
            self.write("place", (after % wraps if self.bounded and wraps else after).astype(held.dtype))
        return found

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


def covering(memory: Memory | None, shape: Shape) -> tuple[Memory | None, Array | None]:
    """Return what `covered_by` does, and its `Memory.keep` for values of this shape."""
    covered = covered_by(memory, shape)
    return covered, None if covered is None else covered.keep(shape)


def start_of(memory: Memory | None, name: str, shape: Shape, dtype: np.dtype) -> Array:
    """Return the value of a fixed state before the rows of a call; zeros where there is no memory."""
    return np.zeros(shape, dtype) if memory is None else memory.read(name, shape, dtype)
