"""Samples brought into the shape and type that network and losses read, where that changes no value.

Targets of one output may lack its axis, class ids may have one of length 1 or be floats, and so may ids of a network
that reads ids. Everything else is left as it is, for the checks of `target_checks`, which say what to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError
from volumetric.clocked import Clocked
from volumetric.network import INPUT, Network
from volumetric.train.data import ArrayData, Batch, Data
from volumetric.train.losses import CrossEntropy, ElementLoss, Loss
from volumetric.train.output_losses import Losses

S = TypeVar("S", "Batch", "ArrayData")
_LARGEST = 2**31
"""Ids are int32."""


def fitted_data(network: Network | Clocked, losses: Losses, data: Data) -> Data:
    """Return `data` with inputs and targets as `network` and `losses` read them."""
    structure = network.network if isinstance(network, Clocked) else network
    return fitted(structure, losses, data) if isinstance(data, ArrayData) else _FittedData(structure, losses, data)


@dataclass(frozen=True, slots=True, eq=False)
class _FittedData:
    """Batches, each fitted."""

    network: Network
    losses: Losses
    data: Data

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of an epoch from number `start` on."""
        return (fitted(self.network, self.losses, batch) for batch in self.data.batches(epoch, start))

    def describe(self) -> dict[str, Any]:
        """Return the facts of the data."""
        return self.data.describe()


def fitted(network: Network, losses: Losses, samples: S) -> S:
    """Return samples with inputs and targets as `network` and `losses` read them; see the module."""
    inputs = _by_name(samples.inputs, INPUT)
    if INPUT not in inputs:
        raise ShapeError(
            f"inputs: the network reads {INPUT!r}, the samples have {', '.join(map(repr, inputs))}",
            hint="pass one array [samples, features]; columns become one by numpy.stack([*columns.values()], axis=1)",
        )
    ids = {name: _whole(array) for name, array in inputs.items() if _reads_ids(network, name)}
    changed = {name: array for name, array in ids.items() if array is not inputs[name]}
    if changed:
        new = {**inputs, **changed}
        samples = replace(samples, inputs=new if isinstance(samples.inputs, Mapping) else new[INPUT])
    only = next(iter(losses.of))
    if not isinstance(samples.targets, Mapping) and len(losses.of) > 1:
        return samples
    targets = _by_name(samples.targets, only)
    lead = _lead(network, inputs.get(INPUT))
    if lead is None:
        return samples
    reshaped = {
        name: _target(array, losses.of[name], network.shapes[network.taps[name]][1:], lead)
        for name, array in targets.items()
        if name in losses.of and name in network.taps
    }
    if all(array is targets[name] for name, array in reshaped.items()):
        return samples
    new = {**targets, **reshaped}
    return replace(samples, targets=new if isinstance(samples.targets, Mapping) else new[only])


def _by_name(of: Any, name: str) -> Mapping[str, Array]:
    return of if isinstance(of, Mapping) else {name: of}


def _reads_ids(network: Network, name: str) -> bool:
    port = network.ports.get(name)
    return port is not None and port.dtype == "int32"


def _whole(array: Array) -> Array:
    """Return floats as int32 if all are whole numbers of that type; other arrays as they are."""
    if array.dtype.kind != "f" or not np.isfinite(array).all() or (np.abs(array) >= _LARGEST).any():
        return array
    ids = array.astype(np.int32)
    return ids if bool((ids == array).all()) else array


def _lead(network: Network, x: Array | None) -> Shape | None:
    """Return the axes of targets before those of an output: samples, or samples and rows of sequences."""
    if x is None:
        return None
    return x.shape[: 2 if x.ndim == len(network.input_shape) + 2 else 1]


def _target(target: Array, loss: Loss, own: Shape, lead: Shape) -> Array:
    """Return targets of an output of shape `own` for each row.

    Functions of the user read the targets as they are.
    """
    if not isinstance(loss, CrossEntropy | ElementLoss):
        return target
    if len(lead) == 2 and lead[1] == 1 and target.shape in (lead[:1], (*lead[:1], *own)) and target.shape != lead:
        target = target[:, None]  # sequences of one row
    if isinstance(loss, ElementLoss):
        return target[..., None] if own == (1,) and target.shape == lead else target
    if own[-1:] == (1,):
        return target  # one class, which the loss refuses
    if target.shape == (*lead, *own[:-1], 1):
        ids = _whole(target[..., 0])
        return ids if ids.dtype.kind in "iub" else target
    return _whole(target) if target.shape == (*lead, *own[:-1]) else target
