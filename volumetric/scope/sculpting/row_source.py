"""Rows for a stream that runs on and on: arrays that loop, functions of the tick, zeros or noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.layers import Embedding
from volumetric.network import INPUT, Network
from volumetric.run.streams.stream_io import row_ports

RowFunction: TypeAlias = Callable[[int], Any]
Rows: TypeAlias = Array | Mapping[str, Array] | RowFunction | Literal["zeros", "noise"]
"""Arrays ``[batch, T, …]`` that loop, or a mapping of these by input; a function that returns the row ``[batch, …]`` of
a tick, counted from 0, or a mapping; or ``"zeros"`` or ``"noise"``."""
_BLOCK: Final = 256  # rows of noise that are drawn together


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumns:
    """An input as a person sees it: of a network that is one fabric or program, its ports.

    Attributes
    ----------
    shape : of one row
    most : for ids, the largest one; None: unknown
    """

    name: str
    shape: Shape
    dtype: Literal["float32", "int32"] = "float32"
    most: int | None = None

    @property
    def size(self) -> int:
        """Number of values of a row."""
        return int(np.prod(self.shape, dtype=np.int64))


def input_columns(network: Network) -> dict[str, InputColumns]:
    """Return the inputs of a network by name."""
    ports = row_ports(network, "inputs")
    if ports:
        return {name: InputColumns(name=name, shape=(stop - start,)) for name, (start, stop) in ports.items()}
    columns: dict[str, InputColumns] = {}
    for name, port in network.ports.items():
        spec = network.layers[port.coord]
        most = spec.num_embeddings - 1 if isinstance(spec, Embedding) and port.dtype == "int32" else None
        columns[name] = InputColumns(name=name, shape=tuple(port.shape), dtype=port.dtype, most=most)
    return columns


class RowSource:
    """Rows of all inputs by tick.

    The row of a tick depends only on its number, so that a run can be repeated; a function of the user must do so, too.

    Parameters
    ----------
    seed : of noise: standard normal numbers, or ids that are equally likely

    Raises
    ------
    SpecError, ShapeError : the rows do not fit the inputs
    """

    def __init__(self, network: Network, rows: Rows | None, *, batch: int = 1, seed: int = 0) -> None:
        self.columns: dict[str, InputColumns] = input_columns(network)
        self._batch, self._seed = batch, seed
        self._arrays: dict[str, Array] = {}
        self._function: RowFunction | None = None
        self._blocks: dict[tuple[str, int], Array] = {}
        if rows is None or isinstance(rows, str):
            if rows not in (None, "zeros", "noise"):
                raise SpecError(f"rows: unknown source {rows!r}", hint='"zeros", "noise", an array or a function')
            self.label: str = rows or "zeros"
        elif callable(rows):
            self._function, self.label = rows, "a function"
        else:
            self._arrays = self._looping(self._by_name(rows))
            self.label = f"{len(next(iter(self._arrays.values()))[0]):,} rows, again and again"

    def rows(self, first: int, count: int) -> dict[str, Array]:
        """Return the rows of ticks from `first` on, counted from 0; ``[batch, count, …]`` by input.

        Raises
        ------
        ShapeError : a row of the user's function does not fit
        """
        if self._function is not None:
            return self._called(self._function, first, count)
        return {name: self._input_rows(of, first, count) for name, of in self.columns.items()}

    def _input_rows(self, of: InputColumns, first: int, count: int) -> Array:
        if of.name in self._arrays:
            array = self._arrays[of.name]
            return np.take(array, np.arange(first, first + count) % array.shape[1], axis=1)
        if self.label != "noise":
            return np.zeros((self._batch, count, *of.shape), of.dtype)
        blocks = [self._noise(of, number) for number in range(first // _BLOCK, (first + count - 1) // _BLOCK + 1)]
        at = first % _BLOCK
        return np.concatenate(blocks, 1)[:, at : at + count]

    def _noise(self, of: InputColumns, number: int) -> Array:
        key = of.name, number
        if key not in self._blocks:
            if len(self._blocks) > 2 * len(self.columns):
                self._blocks.clear()
            place = list(self.columns).index(of.name)
            rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(self._seed, spawn_key=(place, number))))
            shape = (self._batch, _BLOCK, *of.shape)
            ids = of.dtype == "int32"
            drawn = rng.integers(0, 1 + (of.most or 0), shape) if ids else rng.standard_normal(shape, np.float32)
            self._blocks[key] = drawn.astype(of.dtype)
        return self._blocks[key]

    def _called(self, function: RowFunction, first: int, count: int) -> dict[str, Array]:
        rows = [self._by_name(function(t)) for t in range(first, first + count)]
        if any(row.keys() != self.columns.keys() for row in rows):
            raise ShapeError(f"rows: the function must return rows of {', '.join(map(repr, self.columns))}")
        stacked: dict[str, Array] = {}
        for name, of in self.columns.items():
            parts = [np.asarray(row[name]) for row in rows]
            want = (self._batch, *of.shape)
            for t, part in enumerate(parts, first):
                if part.shape != want:
                    raise ShapeError(f"rows: the row of input {name!r} at tick {t} is {part.shape}, expected {want}")
            stacked[name] = np.stack(parts, 1).astype(of.dtype)
        return stacked

    def _by_name(self, rows: Any) -> dict[str, Array]:
        """Return rows by input as a person sees them; the whole row of ports is split."""
        if isinstance(rows, Mapping) and rows.keys() != {INPUT}:
            unknown = [name for name in rows if name not in self.columns]
            if unknown:
                raise SpecError(f"rows: there is no input {unknown[0]!r}", hint=f"inputs are {list(self.columns)}")
            return dict(rows)
        x = np.asarray(rows[INPUT] if isinstance(rows, Mapping) else rows)
        if len(self.columns) == 1:
            return {next(iter(self.columns)): x}
        sizes = [of.size for of in self.columns.values()]
        if INPUT in self.columns or x.ndim < 2 or x.shape[-1] != sum(sizes):
            raise ShapeError(f"rows: expected a mapping with rows of {', '.join(map(repr, self.columns))}")
        ends = np.cumsum(sizes).tolist()
        return {name: x[..., end - n : end] for name, n, end in zip(self.columns, sizes, ends, strict=True)}

    def _looping(self, rows: dict[str, Array]) -> dict[str, Array]:
        arrays: dict[str, Array] = {}
        for name, value in rows.items():
            array, of = np.asarray(value), self.columns[name]
            if array.ndim != 2 + len(of.shape) or array.shape[0] != self._batch or array.shape[2:] != of.shape:
                want = ", ".join(map(str, (self._batch, "T", *of.shape)))
                raise ShapeError(f"rows: input {name!r} needs rows [{want}], got {list(array.shape)}")
            if not array.shape[1]:
                raise ShapeError(f"rows: input {name!r} has no rows")
            arrays[name] = np.array(array, of.dtype)
        return arrays


def with_values(x: Array, values: tuple[float | None, ...], *, add: bool) -> Array:
    """Return rows ``[batch, T, …]`` with numbers added to, or in place of, their columns; None leaves a column."""
    flat = x.reshape(*x.shape[:2], -1).copy()
    for column, value in enumerate(values):
        if value is not None:
            flat[..., column] = flat[..., column] + value if add else value
    return flat.reshape(x.shape)
