"""Conversion of samples by port of a program or a fabric to the network's rows, with ports side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.clocked import Clocked
from volumetric.network import INPUT, OUTPUT, Network
from volumetric.run.streams.stream_io import row_ports
from volumetric.train.arrays import Inputs, Masks, Targets
from volumetric.train.data import ArrayData, Batch, Data
from volumetric.train.stream_windows import RESETS
from volumetric.train.target_checks import spread_weights

S = TypeVar("S", "Batch", "ArrayData")
Columns = Mapping[str, tuple[int, int]]
"""Port → its first column in a row, and one past its last."""


def data_by_row(network: Network | Clocked, data: Data) -> Data:
    """Return `data` with inputs and targets by port converted to rows of the network.

    Raises
    ------
    SpecError : inputs or targets name a port that the network lacks
    ShapeError : a port has no inputs, or its arrays have another width, or samples or lengths unlike other ports
    """
    if isinstance(network, Clocked) or not (row_ports(network, "inputs") or row_ports(network, "outputs")):
        return data
    return by_row(network, data) if isinstance(data, ArrayData) else _RowData(network, data)


def by_row(network: Network, samples: S) -> S:
    """Return samples with inputs and targets as rows; missing targets of a port have weight 0. See `data_by_row`."""
    ins, outs = row_ports(network, "inputs"), row_ports(network, "outputs")
    inputs, (targets, mask) = _inputs(ins, samples.inputs), _targets(outs, samples.targets, samples.mask)
    ports = {} if inputs is samples.inputs else {"inputs": ins}
    if targets is not samples.targets:
        ports |= {"targets": outs} | ({"mask": outs} if isinstance(samples.mask, Mapping) else {})
    return replace(samples, inputs=inputs, targets=targets, mask=mask, ports=ports or samples.ports)


@dataclass(frozen=True, slots=True, eq=False)
class _RowData:
    """Batches as rows."""

    network: Network
    data: Data

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on."""
        return (by_row(self.network, batch) for batch in self.data.batches(epoch, start))

    def describe(self) -> dict[str, Any]:
        """Return the facts of the data."""
        return self.data.describe()


def _inputs(ports: Columns, inputs: Inputs) -> Inputs:
    if not ports or not isinstance(inputs, Mapping):
        return inputs
    resets = {name: of for name, of in inputs.items() if name == RESETS and name not in ports}
    parts = {name: of for name, of in inputs.items() if name not in resets}
    if parts.keys() == {INPUT}:
        return inputs
    lead = _lead("input", ports, parts)
    missing = next((name for name in ports if name not in parts), None)
    if missing is not None:
        raise ShapeError(f"input {missing!r} is missing", hint="pass rows for every input")
    rows = np.concatenate([_part("input", name, parts[name], lead, ports[name]) for name in ports], -1)
    return {INPUT: rows, **resets} if resets else rows


def _targets(ports: Columns, targets: Targets, mask: Masks) -> tuple[Targets, Masks]:
    if not ports or not isinstance(targets, Mapping) or targets.keys() == {OUTPUT}:
        return targets, mask
    lead = _lead("output", ports, targets)
    shape = (*lead, max(last for _, last in ports.values()))
    parts = {name: _part("output", name, targets[name], lead, ports[name]) for name in targets}
    whole = np.zeros(shape, np.result_type(np.float32, *parts.values()))
    counts = np.zeros(shape, np.float32)
    for name, part in parts.items():
        own = (..., slice(*ports[name]))
        whole[own] = part
        counts[own] = spread_weights(mask[name], part.shape) if isinstance(mask, Mapping) and name in mask else 1
    if isinstance(mask, Mapping):
        odd = next((name for name in mask if name not in targets), None)
        if odd is not None:
            raise SpecError(
                f"the mask of output {odd!r} has no targets", hint="pass targets for it, or remove the mask"
            )
    elif mask is not None:
        counts *= spread_weights(mask, shape)
    return whole, None if mask is None and counts.all() else counts


def _lead(what: str, ports: Columns, arrays: Mapping[str, Array]) -> Shape:
    """Return the common leading shape, samples or samples and rows; raise for an unknown port."""
    odd = next((name for name in arrays if name not in ports), None)
    if odd is not None:
        known = ", ".join(map(repr, ports))
        raise SpecError(f"the network has no {what} {odd!r}", hint=f"its {what}s are {known}")
    wide = [array for name, array in arrays.items() if array.ndim > 1 and array.shape[-1] == _width(ports[name])]
    return max((array.shape[:-1] for array in wide), key=len, default=next(iter(arrays.values())).shape)


def _part(what: str, name: str, array: Array, lead: Shape, columns: tuple[int, int]) -> Array:
    """Return the columns of a port; a port of width 1 may lack the column axis."""
    shape = (*lead, _width(columns))
    if array.shape == lead and shape[-1] == 1:
        return array[..., None]
    if array.shape != shape:
        raise ShapeError(f"{what} {name!r}: expected {list(shape)}, got {list(array.shape)}")
    return array


def _width(columns: tuple[int, int]) -> int:
    return columns[1] - columns[0]
