"""A state as bytes: what one device has computed of a sequence goes on later, or on another device.

The bytes are plain data and nothing in them is ever run. Their header has the position and, for each state in the order
of the plan, its key, kind and shape, and the type in which the device holds it; the body is the arrays, one behind the
other, little-endian (`sealed` has what is around). A state of rows has as many as the position says, each in its
logical shape, such as ``[kv_heads, head_dim]``, however the device lays them out. Of int8 rows the float32 scales
follow the codes, one for each row and head.

Nothing is rounded in saving. Restoring converts to what the device holds: to a wider type without loss, to a narrower
one as the device rounds when it computes the rows itself. The weights are not part of it: a state belongs to the model
that made it, and another one of the same form takes it without complaint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import msgspec
import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import CheckpointError
from volumetric.graph.state import StateKind
from volumetric.layers import StateSpec
from volumetric.run.held import Coded, Held
from volumetric.run.sealed import Seal
from volumetric.run.state import check_room

SEAL = Seal(magic=b"VOLSTATE", version=1, what="a saved state")
_STORED = ("float64", "float32", "float16", "int8", "int32")


class HoldingState(Protocol):
    """What saving and restoring ask of a device's state."""

    @property
    def position(self) -> int:
        """Rows held."""
        ...

    def read(self, key: str) -> Held:
        """Return the rows held ``[position, *shape]``, or the value ``[*shape]``, of the state `key`."""
        ...

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all states of a state that is empty, which from then on is at `position`."""
        ...


class HeldValues:
    """A `HoldingState` in host memory: values by key, and how many rows or ticks there have been."""

    def __init__(self, values: Mapping[str, Held], position: int) -> None:
        self.values, self.position = values, position

    def read(self, key: str) -> Held:
        """Return what is kept under a key."""
        return self.values[key]

    def fill(self, values: Mapping[str, Held], position: int) -> None:
        """Replace all of it."""
        self.values, self.position = values, position


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    kind: StateKind
    shape: tuple[int, ...]
    dtype: str
    first: int = 0
    """Row of the sequence with which the rows begin that are held; no later row reads those before it."""


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    position: int
    states: list[_Entry]


def save_state(state: HoldingState, specs: Mapping[str, StateSpec]) -> bytes:
    """Return `state`, whose plan declares `specs`, as bytes."""
    entries: list[_Entry] = []
    parts: list[memoryview] = []
    for key, spec in specs.items() if state.position else ():
        value = state.read(key)
        arrays = (value.codes, value.scales) if isinstance(value, Coded) else (value,)
        first = state.position - len(arrays[0]) if spec.kind == "rows" else 0
        entries.append(_Entry(key=key, kind=spec.kind, shape=spec.shape, dtype=str(arrays[0].dtype), first=first))
        parts += [np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data for array in arrays]
    return SEAL.close(_Header(position=state.position, states=entries), parts)


def restore_state(state: HoldingState, data: bytes, specs: Mapping[str, StateSpec], context: int) -> None:
    """Make `state`, new and empty, hold what `data` says, bytes of any state of a plan with the same states.

    Raises
    ------
    CheckpointError : the bytes are no state, damaged, of a later version, or of a network with other states; `state` is
        as it was then
    GenerationError : there are more rows than `context`
    """
    header, body = SEAL.open(data, _Header)
    _check_sizes(header, len(body))
    check_room(0, header.position, context)
    if not header.position:
        return
    _check_network(header, specs)
    values: dict[str, Held] = {}
    at = 0
    for entry in header.states:
        values[entry.key], at = _read_array(body, at, entry, header.position)
    state.fill(values, header.position)


def _check_sizes(header: _Header, actual: int) -> None:
    """Raise `CheckpointError` unless what the header announces takes the bytes that are there."""
    if any(entry.dtype not in _STORED for entry in header.states):
        raise SEAL.damaged("its header has a type that this release does not know")
    if header.position < 0 or any(axis < 1 for entry in header.states for axis in entry.shape):
        raise SEAL.damaged("its header has a size below 1")
    if any(not 0 <= entry.first <= (header.position if entry.kind == "rows" else 0) for entry in header.states):
        raise SEAL.damaged("its header has rows beyond the end")
    if any(entry.dtype == "int8" and not entry.shape for entry in header.states):
        raise SEAL.damaged("its header has codes without a head")
    announced = sum(_nbytes(entry, header.position) for entry in header.states)
    if announced != actual:
        raise SEAL.damaged(f"its header announces {announced} bytes of arrays, there are {actual}")


def _check_network(header: _Header, specs: Mapping[str, StateSpec]) -> None:
    """Raise `CheckpointError` unless the header lists the states `specs`."""
    saved = {entry.key: _shown(entry.kind, entry.shape, entry.dtype) for entry in header.states}
    expected = {key: _shown(spec.kind, spec.shape, spec.dtype) for key, spec in specs.items()}
    if len(saved) == len(header.states) and saved == expected:
        for entry in header.states:
            window = specs[entry.key].window
            if entry.first > (0 if window is None else max(0, header.position + 1 - window)):
                raise SEAL.damaged(f"it lacks rows of {entry.key} that the next one reads")
        return
    other = next((key for key in (*expected, *saved) if saved.get(key) != expected.get(key)), "a state twice")
    there, here = (of.get(other, "not there") for of in (saved, expected))
    raise CheckpointError(
        f"the saved state is of another network: {other} is {there} in it, {here} here",
        hint="restore it with the model that saved it",
    )


def _shown(kind: StateKind, shape: Shape, dtype: str) -> str:
    return f"{kind} {list(shape)} of {'integers' if dtype == 'int32' else 'floats'}"


def _read_array(data: memoryview, at: int, entry: _Entry, position: int) -> tuple[Held, int]:
    shape = _full_shape(entry, position)
    count, dtype = math.prod(shape), np.dtype(entry.dtype).newbyteorder("<")
    array = np.frombuffer(data, dtype, count, at).reshape(shape).astype(entry.dtype, copy=False)
    at += array.nbytes
    if entry.dtype != "int8":
        return array, at
    scales = np.frombuffer(data, "<f4", math.prod(shape[:-1]), at).reshape(shape[:-1])
    return Coded(array, scales.astype(np.float32, copy=False)), at + scales.nbytes


def _nbytes(entry: _Entry, position: int) -> int:
    shape = _full_shape(entry, position)
    scales = 4 * math.prod(shape[:-1]) if entry.dtype == "int8" else 0
    return math.prod(shape) * np.dtype(entry.dtype).itemsize + scales


def _full_shape(entry: _Entry, position: int) -> Shape:
    return (position - entry.first, *entry.shape) if entry.kind == "rows" else entry.shape
