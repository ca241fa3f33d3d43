"""A state as bytes: a sequence continues later, or on another device.

The bytes are plain data and nothing in them is executed. Their header has the position and, for each state in the order
of the plan, its key, kind, shape, stored dtype and first stored row; the body is the concatenated arrays, little-endian
(see `sealed` for the container). A state of rows has the rows from the first stored one to the position, each in its
logical shape, such as ``[kv_heads, head_dim]``, independent of the device's layout. For int8 rows the float32 scales
follow the codes, one for each row and head.

Saving does not round. Restoring converts to the dtype of the device: to a wider one without loss, to a narrower one as
the device rounds rows that it computes. The weights are not included: restore a state with the model that saved it.
Another model with the same states is not detected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol

import msgspec
import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import CheckpointError
from volumetric.graph.state_spec import StateKind
from volumetric.layers import StateSpec
from volumetric.run.checked_blob import BlobFormat
from volumetric.run.kv_value import KvValue, QuantisedKv
from volumetric.run.sequence_state import check_capacity

SEAL = BlobFormat(magic=b"VOLSTATE", version=1, what="a saved state")
_STORED = ("float64", "float32", "float16", "int8", "int32")


class RestorableState(Protocol):
    """The interface of a device's state for saving and restoring."""

    @property
    def position(self) -> int:
        """Number of rows."""
        ...

    def read(self, key: str) -> KvValue:
        """Return the stored rows ``[position, *shape]``, or the value ``[*shape]``, of the state `key`."""
        ...

    def fill(self, values: Mapping[str, KvValue], position: int) -> None:
        """Set all values of an empty state, and its position."""
        ...


class SavedValues:
    """A `RestorableState` in host memory: values by key, and the number of rows or ticks so far."""

    def __init__(self, values: Mapping[str, KvValue], position: int) -> None:
        self.values, self.position = values, position

    def read(self, key: str) -> KvValue:
        """Return the value of a key."""
        return self.values[key]

    def fill(self, values: Mapping[str, KvValue], position: int) -> None:
        """Replace all values."""
        self.values: Mapping[str, KvValue] = values
        self.position: int = position


class _StateEntry(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    kind: StateKind
    shape: tuple[int, ...]
    dtype: str
    first: int = 0
    """Index in the sequence of the first stored row; no later row reads earlier ones."""


class _StateHeader(msgspec.Struct, forbid_unknown_fields=True):
    position: int
    states: list[_StateEntry]


def save_state(state: RestorableState, specs: Mapping[str, StateSpec]) -> bytes:
    """Return `state`, whose plan declares `specs`, as bytes."""
    entries: list[_StateEntry] = []
    parts: list[memoryview] = []
    for key, spec in specs.items() if state.position else ():
        value = state.read(key)
        arrays = (value.codes, value.scales) if isinstance(value, QuantisedKv) else (value,)
        first = state.position - len(arrays[0]) if spec.kind == "rows" else 0
        entries.append(_StateEntry(key=key, kind=spec.kind, shape=spec.shape, dtype=str(arrays[0].dtype), first=first))
        parts += [np.ascontiguousarray(array, array.dtype.newbyteorder("<")).data for array in arrays]
    return SEAL.pack(_StateHeader(position=state.position, states=entries), parts)


def restore_state(state: RestorableState, data: bytes, specs: Mapping[str, StateSpec], context: int) -> None:
    """Fill `state`, new and empty, from `data`: the bytes of any state of a plan with the same states.

    Raises
    ------
    CheckpointError : the bytes are not a state, damaged, of a later version, or of a network with other states; `state`
        is unchanged then
    GenerationError : there are more rows than `context`
    """
    header, body = SEAL.unpack(data, _StateHeader)
    _check_sizes(header, len(body))
    check_capacity(0, header.position, context)
    if not header.position:
        return
    _check_network(header, specs)
    values: dict[str, KvValue] = {}
    at = 0
    for entry in header.states:
        values[entry.key], at = _read_array(body, at, entry, header.position)
    state.fill(values, header.position)


def _check_sizes(header: _StateHeader, actual: int) -> None:
    """Raise `CheckpointError` unless the size of the body matches the header."""
    if any(entry.dtype not in _STORED for entry in header.states):
        raise SEAL.damaged_error("its header has an unknown dtype")
    if header.position < 0 or any(axis < 1 for entry in header.states for axis in entry.shape):
        raise SEAL.damaged_error("its header has a size below 1")
    if any(not 0 <= entry.first <= (header.position if entry.kind == "rows" else 0) for entry in header.states):
        raise SEAL.damaged_error("its header has rows beyond the end")
    if any(entry.dtype == "int8" and not entry.shape for entry in header.states):
        raise SEAL.damaged_error("its header has int8 codes without an axis of heads")
    announced = sum(_nbytes(entry, header.position) for entry in header.states)
    if announced != actual:
        raise SEAL.damaged_error(f"expected {announced} bytes of arrays, got {actual}")


def _check_network(header: _StateHeader, specs: Mapping[str, StateSpec]) -> None:
    """Raise `CheckpointError` unless the header lists the states `specs`."""
    saved = {entry.key: _describe_state(entry.kind, entry.shape, entry.dtype) for entry in header.states}
    expected = {key: _describe_state(spec.kind, spec.shape, spec.dtype) for key, spec in specs.items()}
    if len(saved) == len(header.states) and saved == expected:
        for entry in header.states:
            window = specs[entry.key].window
            if entry.first > (0 if window is None else max(0, header.position + 1 - window)):
                raise SEAL.damaged_error(f"rows of {entry.key} that the next row reads are missing")
        return
    other = next((key for key in (*expected, *saved) if saved.get(key) != expected.get(key)), "a duplicate state")
    there, here = (of.get(other, "missing") for of in (saved, expected))
    raise CheckpointError(
        f"the saved state is of another network: {other} is {there}, expected {here}",
        hint="restore it with the model that saved it",
    )


def _describe_state(kind: StateKind, shape: Shape, dtype: str) -> str:
    return f"{kind} {list(shape)} of {'integers' if dtype == 'int32' else 'floats'}"


def _read_array(data: memoryview, at: int, entry: _StateEntry, position: int) -> tuple[KvValue, int]:
    shape = _full_shape(entry, position)
    count, dtype = math.prod(shape), np.dtype(entry.dtype).newbyteorder("<")
    array = np.frombuffer(data, dtype, count, at).reshape(shape).astype(entry.dtype, copy=False)
    at += array.nbytes
    if entry.dtype != "int8":
        return array, at
    scales = np.frombuffer(data, "<f4", math.prod(shape[:-1]), at).reshape(shape[:-1])
    return QuantisedKv(array, scales.astype(np.float32, copy=False)), at + scales.nbytes


def _nbytes(entry: _StateEntry, position: int) -> int:
    shape = _full_shape(entry, position)
    scales = 4 * math.prod(shape[:-1]) if entry.dtype == "int8" else 0
    return math.prod(shape) * np.dtype(entry.dtype).itemsize + scales


def _full_shape(entry: _StateEntry, position: int) -> Shape:
    return (position - entry.first, *entry.shape) if entry.kind == "rows" else entry.shape
