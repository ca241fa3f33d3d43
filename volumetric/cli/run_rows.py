"""Rows for streams, from JSON lines or arrays, checked as they are read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.cli.exits import UsageError
from volumetric.network import INPUT, Network
from volumetric.network.grid import Port
from volumetric.run.streams.stream_chunks import StreamChunk, in_chunks
from volumetric.run.streams.stream_io import row_ports

CHUNK: Final = 64
"""Most rows of a call."""

LINE, NUMBER = 1 << 20, 64
"""Most bytes of a line, and for each of its numbers, with a margin; longer lines are refused."""

PIECE: Final = 1 << 16
"""Most bytes of a read."""

RESET: Final = "reset"
"""Key that resets a stream, unless an input has this name."""


def line_chunks(
    read: Callable[[int], bytes],
    what: str,
    network: Network,
    batch: int,
    waiting: Callable[[], AbstractContextManager[None]],
) -> Iterator[StreamChunk]:
    """Yield the rows of JSON lines as soon as they arrive.

    Parameters
    ----------
    read : returns available bytes, at most as many as its argument; none at the end
    what : name of the file in errors
    waiting : context that is entered while a read waits

    Raises
    ------
    UsageError : a line is not a row; the message has its number
    """
    reader = _RowReader(network, batch, what)
    for lines in _lines(read, what, waiting, reader.longest):
        rows: list[dict[str, Array]] = []
        marks: list[Array] = []
        try:
            for row, mark in filter(None, map(reader.row, lines)):
                rows.append(row)
                marks.append(mark)
        except UsageError:
            yield from in_chunks(rows, marks, chunk=CHUNK)  # the rows before the invalid one are still processed
            raise
        yield from in_chunks(rows, marks, chunk=CHUNK)


def _lines(
    read: Callable[[int], bytes], what: str, waiting: Callable[[], AbstractContextManager[None]], longest: int
) -> Iterator[list[bytes]]:
    """Yield the lines of each block that arrives; the last line may lack its line break."""
    begun: list[bytes] = []
    while True:
        with waiting():
            piece = read(PIECE)
        if not piece:
            break
        first, *others = piece.split(b"\n")
        begun.append(first)
        if others:
            yield [b"".join(begun), *others[:-1]]
            begun = [others[-1]]
        if sum(map(len, begun)) > longest:
            raise UsageError(f"{what} has a line of more than {longest:,} bytes", hint="write one row per line")
    if any(begun):
        yield [b"".join(begun)]


class _RowReader:
    """Parses lines into rows of a network, and counts them."""

    def __init__(self, network: Network, batch: int, what: str) -> None:
        self._ports, self._batch, self._what = inputs_of(network), batch, what
        self._number = 0
        self.longest = LINE + NUMBER * batch * sum(prod(port.shape) for port in self._ports.values())

    def row(self, text: bytes) -> tuple[dict[str, Array], Array] | None:
        """Return a line's values by input, and the streams that it resets; None for an empty line."""
        self._number += 1
        if not text.strip():
            return None
        where = f"{self._what}, line {self._number}"
        try:
            value = json.loads(text.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{where} is not JSON: {str(error)[:100]}", hint="a line is a row: [0.5, 1.0]") from None
        named: dict[str, Any] = value if isinstance(value, dict) else {INPUT: value}
        mark = np.zeros(self._batch, np.int64)
        if RESET in named and RESET not in self._ports:
            mark = self._mark(named[RESET], where)
            named = {name: one for name, one in named.items() if name != RESET}
        check_names(named, self._ports, where)
        return {name: self._array(one, name, where) for name, one in named.items()}, mark

    def _mark(self, value: Any, where: str) -> Array:
        marks = value if isinstance(value, list) else [value] * self._batch
        if len(marks) != self._batch or any(mark not in (0, 1) for mark in marks):
            expected = "true or false" if self._batch == 1 else f"true, false, or {self._batch} of them"
            raise UsageError(f'{where}: "{RESET}" must be {expected}')
        return np.array(marks, np.int64)

    def _array(self, value: Any, name: str, where: str) -> Array:
        port = self._ports[name]
        shape = port.shape if self._batch == 1 else (self._batch, *port.shape)
        try:
            array = np.array(value)
        except ValueError:
            raise UsageError(f"{where}: input {name!r} is ragged", hint=f"a row is {list(shape)} numbers") from None
        array = numbers(array, port, f"{where}: input {name!r}")
        if array.shape != shape:
            raise UsageError(
                f"{where}: input {name!r}: expected {list(shape)}, got {list(array.shape)}",
                hint=f"a line is a list of {' × '.join(map(str, shape)) or 'one'} numbers",
            )
        return array.reshape(self._batch, *port.shape)


def numbers(array: Array, port: Port, where: str) -> Array:
    """Convert an array to the type of an input. Raises `UsageError` if that is impossible."""
    if array.dtype.kind not in ("iu" if port.dtype == "int32" else "iuf"):
        expected = "ids, which must be whole numbers" if port.dtype == "int32" else "numbers"
        raise UsageError(
            f"{where}: expected {expected}, got {_kind_name(array)}", hint="a row is a list of numbers, as [0.5, 1.0]"
        )
    with np.errstate(over="ignore"):
        converted = array.astype(port.dtype)
    wrong = converted != array if port.dtype == "int32" else np.isinf(converted) & np.isfinite(array)
    if wrong.any():
        raise UsageError(f"{where}: {array[wrong].flat[0]} does not fit in {port.dtype}")
    return converted


def _kind_name(array: Array) -> str:
    names = {"b": "true or false", "U": "text", "S": "text", "f": "fractions", "c": "complex numbers"}
    return names.get(array.dtype.kind, "something else" if array.ndim else f"{array.item()!r}"[:40])


def inputs_of(network: Network) -> dict[str, Port]:
    """Return the inputs of a network, and the named parts of its row."""
    first = next(iter(network.layers))
    parts = row_ports(network, "inputs").items()
    named = {name: Port(coord=first, shape=(stop - start,), dtype="float32") for name, (start, stop) in parts}
    return {**named, **network.ports}


def check_names(names: Mapping[str, Any], ports: Mapping[str, Port], where: str) -> None:
    """Raise `UsageError` for an unknown name of an input."""
    for name in names:
        if name not in ports:
            known = ", ".join(map(repr, ports))
            raise UsageError(f"{where}: the network has no input {name!r}", hint=f"its inputs are {known}")


class ArrayRows:
    """Rows of a file: arrays by input, ``[B, T, …]`` or ``[T, …]``, and optionally ``reset``, ``[B, T]`` or ``[T]``.

    Attributes
    ----------
    batch : number of streams

    Raises
    ------
    UsageError : the arrays do not match the inputs of the network in name or shape
    """

    def __init__(self, arrays: Mapping[str, Array], path: Path, network: Network) -> None:
        arrays, ports = dict(arrays), inputs_of(network)
        marks = arrays.pop(RESET, None) if RESET not in ports else None
        check_names(arrays, ports, str(path))
        if not arrays:
            raise UsageError(f"{path} has no rows", hint=f"name arrays like the inputs: {', '.join(ports)}")
        self._x = {name: _sequences(array, name, ports[name], path) for name, array in arrays.items()}
        sizes = {name: x.shape[:2] for name, x in self._x.items()}
        if marks is not None:
            marks = marks[None] if marks.ndim == 1 else marks
            sizes[RESET] = marks.shape
            if not np.isin(marks, (0, 1)).all():
                raise UsageError(f"{path}: {RESET!r} must be 0 and 1")
        if len(set(sizes.values())) > 1:
            shapes = ", ".join(f"{name} {list(size)}" for name, size in sizes.items())
            raise UsageError(f"{path}: all arrays must have the same streams and rows, got {shapes}")
        self._marks = marks
        self.batch: int
        self.batch, self._rows = next(iter(sizes.values()))
        if not self.batch:
            raise UsageError(f"{path} has no streams")

    def chunks(self) -> Iterator[StreamChunk]:
        """Yield the rows."""
        for start in range(0, self._rows, CHUNK):
            stop = min(start + CHUNK, self._rows)
            marks = None if self._marks is None else self._marks[:, start:stop].astype(np.int64)
            x = {name: one[:, start:stop] for name, one in self._x.items()}
            yield StreamChunk(x=x, count=stop - start, resets=marks)


def _sequences(array: Array, name: str, port: Port, path: Path) -> Array:
    array = numbers(array, port, f"{path}: input {name!r}")
    if array.ndim == 1 + len(port.shape):
        array = array[None]
    if array.ndim != 2 + len(port.shape) or array.shape[2:] != port.shape:
        shown = _shape_text(port.shape)
        raise UsageError(
            f"{path}: input {name!r}: expected [T{shown}] or [B, T{shown}], got {list(array.shape)}",
            hint="a row has as many numbers as the network has inputs: volumetric inspect MODEL shows them",
        )
    return array


def _shape_text(shape: Sequence[int]) -> str:
    return "".join(f", {axis}" for axis in shape)
