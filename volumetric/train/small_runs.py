"""Choice of the device for ``"auto"``: short runs train on the reference device, which needs no compilation.

An update of a small network takes NumPy about a millisecond. Compiled kernels take a tenth of that, but loading them
costs half a second at every start, and compiling them 10 to 30 seconds at the first. The choice depends only on the
network, the data and the settings, never on caches or the speed of the machine, so that a run always gives the same
bits.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable

from volumetric.clocked import Clocked
from volumetric.devices.named_devices import VARIABLE, AnyDevice
from volumetric.layers import LayerSpec
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.data import ArrayData, Batch, Data
from volumetric.train.latency import rows_of
from volumetric.train.training_config import TrainConfig

SECONDS = 2.0
"""Runs that take at most this estimated time use the reference device."""
_SECONDS_A_LAYER = 1e-3
"""Forward, backward and update of one layer in NumPy, whatever its size: 0.3 to 0.8 ms measured on one core."""
_OPERATIONS_A_SECOND = 5e9

_log = logging.getLogger(__name__)


def device_of_run(
    device: AnyDevice, network: Network | Clocked, params: Params, config: TrainConfig, data: Data
) -> AnyDevice:
    """Return the device for a run: `device`, or ``"reference"`` if that is ``"auto"`` and the run is small.

    A device set by the environment variable VOLUMETRIC_DEVICE is never replaced.
    """
    if device != "auto" or os.environ.get(VARIABLE) or not isinstance(data, ArrayData):
        return device
    seconds = _estimate(network, params, config, data)
    if seconds > SECONDS:
        return device
    _log.info("device auto: reference (the whole run is estimated at %.1f s there, less than compiling takes)", seconds)
    return "reference"


def _estimate(network: Network | Clocked, params: Params, config: TrainConfig, data: ArrayData) -> float:
    """Estimate the seconds that all updates of a run take on the reference device."""
    updates = config.epochs * math.ceil(data.batches_per_epoch / config.accumulate)
    updates = min(updates, config.max_steps or updates)
    samples = min(len(data), data.batch_size * config.accumulate)
    structure = network.network if isinstance(network, Clocked) else network
    length = max(1, rows_of(structure, Batch(data.inputs, data.targets, data.mask)))
    if isinstance(network, Clocked):
        ticks = (length + len(structure.layers)) * getattr(config.mode, "ticks_per_row", 1)
        layers = ticks * len(set(structure.layers.values()))  # equal coordinates compute together
    else:
        ticks = length
        layers = sum(_passes(spec, length) for spec in _all_layers(structure.layers.values()))
    operations = 6 * samples * ticks * sum(math.prod(store.shape) for store in params.values())
    return updates * (layers * _SECONDS_A_LAYER + operations / _OPERATIONS_A_SECOND)


def _all_layers(specs: Iterable[LayerSpec]) -> Iterable[LayerSpec]:
    for spec in specs:
        yield spec
        yield from _all_layers(spec.children().values())


def _passes(spec: LayerSpec, length: int) -> float:
    """Return the number of NumPy passes of a layer for `length` rows: 1, or one per row for recurrent layers.

    Fabrics and programs contain many layers and are not estimated.
    """
    if spec.ports("inputs"):
        return math.inf
    return length if any(state.kind == "fixed" for state in spec.states()) else 1
