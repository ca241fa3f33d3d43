"""Checks of the inputs of streams, and the form of their outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import GenerationError, ShapeError, SpecError
from volumetric.layers import Embedding
from volumetric.network import INPUT, Network
from volumetric.run.row_dtype import as_input_dtype


def check_rows(network: Network, x: Array | Mapping[str, Array] | None, batch: int) -> tuple[dict[str, Array], int]:
    """Return rows by input, ``[batch, T, …]`` in the input's type, and T; 0 without any.

    Raises
    ------
    SpecError : an input is unknown
    ShapeError : rows have another shape or dtype than their input, or inputs have different numbers of rows
    GenerationError : an id is outside of the vocabulary
    """
    inputs = {} if x is None else inputs_by_port(network, x, batch) if isinstance(x, Mapping) else {INPUT: x}
    rows: int | None = None
    for name, value in inputs.items():
        if name not in network.ports:
            raise _no_input(network, name)
        want = network.ports[name]
        value = as_input_dtype(value, want.dtype, f"input {name!r}")
        if value.ndim != 2 + len(want.shape) or value.shape[0] != batch or value.shape[2:] != want.shape:
            shown = ", ".join(map(str, (batch, "T", *want.shape)))
            raise ShapeError(
                f"input {name!r}: expected [{shown}], got {list(value.shape)}",
                hint="pass the rows of one stream as x[None]"
                if batch == 1 and value.ndim == 1 + len(want.shape)
                else None,
            )
        if rows not in (None, value.shape[1]):
            raise ShapeError(f"input {name!r} has {value.shape[1]} rows, others have {rows}")
        rows = value.shape[1]
        if want.dtype == "int32":
            _check_ids(network, name, value)
        inputs[name] = np.ascontiguousarray(value, want.dtype)
    return inputs, rows or 0


def _check_ids(network: Network, name: str, ids: Array) -> None:
    coord = network.ports[name].coord
    spec = network.layers[coord]
    if isinstance(spec, Embedding) and ids.size:
        odd = (ids < 0) | (ids >= spec.num_embeddings)
        if odd.any():
            raise GenerationError(
                f"input {name!r}: id {ids[odd][0]} is outside of the {spec.num_embeddings} rows of the layer at {coord}"
            )


def check_marks(resets: Array, batch: int, rows: int) -> Array:
    """Return resets ``[batch, rows]``. Raises `ShapeError` for another shape or values other than 0 and 1."""
    resets = np.asarray(resets)
    if resets.shape != (batch, rows):
        raise ShapeError(f"resets: expected [{batch}, {rows}], got {list(resets.shape)}")
    odd = ~np.isin(resets, (0, 1))
    if odd.any():
        hint = "1 marks a row that starts a new sequence"
        raise ShapeError(f"resets: expected 0 and 1, got {resets[odd].flat[0]}", hint=hint)
    return resets


def check_streams(streams: Iterable[int] | None, batch: int) -> list[int]:
    """Return the selected streams, all for None. Raises `SpecError` for an unknown number."""
    numbers = list(range(batch)) if streams is None else list(streams)
    for b in numbers:
        if isinstance(b, bool) or not isinstance(b, (int, np.integer)) or not 0 <= b < batch:
            raise SpecError(f"there is no stream {b!r}", hint=f"streams are 0 … {batch - 1}")
    return numbers


def inputs_by_port(network: Network, x: Mapping[str, Array], batch: int) -> dict[str, Array]:
    """Return rows by input; rows of the first layer's ports are concatenated to its row.

    Raises
    ------
    SpecError : there are rows of a port and of an unknown name
    ShapeError : rows of a port are missing or have another width, or ports have different numbers of rows
    """
    ports = row_ports(network, "inputs")
    if x.keys().isdisjoint(ports) or x.keys() == {INPUT}:
        return dict(x)
    for name in x:
        if name not in ports:
            raise _no_input(network, name)
    parts: list[Array] = []
    for name, (first, last) in ports.items():
        if name not in x:
            raise ShapeError(f"input {name!r} has no rows", hint="pass rows for every input")
        part = np.asarray(x[name])
        if part.ndim != 3 or part.shape[0] != batch or part.shape[2] != last - first:
            raise ShapeError(f"input {name!r}: expected [{batch}, T, {last - first}], got {list(part.shape)}")
        if parts and part.shape[1] != parts[0].shape[1]:
            raise ShapeError(f"input {name!r} has {part.shape[1]} rows, others have {parts[0].shape[1]}")
        parts.append(part)
    return {INPUT: np.concatenate(parts, 2)}


def _no_input(network: Network, name: object) -> SpecError:
    known = ", ".join(map(repr, dict.fromkeys([*row_ports(network, "inputs"), *network.ports])))
    return SpecError(f"the network has no input {name!r}", hint=f"its inputs are {known}")


def outputs_by_port(network: Network, x: object, outputs: dict[str, Array]) -> Array | dict[str, Array]:
    """Return the only output, or all by name; by port if rows were passed by port."""
    if not isinstance(x, Mapping):
        return single_output(outputs)
    ports = row_ports(network, "outputs")
    port_names = row_ports(network, "inputs").keys()
    if len(outputs) > 1 or not ports or x.keys() == {INPUT} or not x.keys() <= port_names:
        return single_output(outputs)
    [y] = outputs.values()
    return {name: y[..., first:last] for name, (first, last) in ports.items()}


def row_ports(network: Network, which: Literal["inputs", "outputs"]) -> Mapping[str, tuple[int, int]]:
    """Return the named parts of the row that the first layer reads, or of the row that the last layer outputs."""
    layers = list(network.layers.values())
    if network.inputs or network.outputs:
        return {}
    return layers[0 if which == "inputs" else -1].ports(which)


def single_output(outputs: dict[str, Array]) -> Array | dict[str, Array]:
    """Return the only output, or all by name."""
    return outputs if len(outputs) > 1 else next(iter(outputs.values()))
