"""Learners by device name. The module of a device is imported only when it is used."""

from __future__ import annotations

import dataclasses

from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.clocked import Clocked
from volumetric.devices.named_devices import AnyDevice, open_device
from volumetric.network import Network
from volumetric.network.weight_store import Params
from volumetric.train.learner import Learner, LearnerOptions, OpenLearner, WindowedLearner
from volumetric.train.modes import Systolic, TargetPropagation


def open_learner(device: AnyDevice = "auto", *, threads: int | None = None) -> OpenLearner:
    """Return a learner factory for `device`: a name, as for `open_device`, or an open device.

    Raises
    ------
    DeviceError
        The device does not exist.
    UnsupportedError
        The device does not support training.
    """
    opened = open_device(device, threads=threads)
    from volumetric.train.device_learner import learner_on

    if getattr(opened, "graphs", None) is None:
        raise UnsupportedError(
            f"device {opened.info.name!r} does not support training", hint="use the device cpu, gpu or reference"
        )
    return learner_on(opened)  # pyright: ignore[reportArgumentType]  (it has graphs)


def bind(opens: OpenLearner, network: Network | Clocked, params: Params, options: LearnerOptions) -> Learner:
    """Return the learner of a network or of a clocked network.

    Raises
    ------
    SpecError : the mode does not train clocked networks
    UnsupportedError : `opens` creates learners that do not train clocked networks
    """
    if isinstance(network, Network):
        return _with_populations(opens(network, params, options), network)
    if not isinstance(options.mode, Systolic | TargetPropagation):
        raise SpecError(
            f"mode {options.mode.kind!r} does not train clocked networks",
            hint="use mode=Systolic() or mode=TargetPropagation()",
        )
    learner = opens(network.network, params, dataclasses.replace(options, clocked=network))
    if not isinstance(learner, WindowedLearner):
        raise UnsupportedError(
            f"{type(learner).__name__} does not train clocked networks", hint="pass a device instead of a learner"
        )
    return _with_populations(learner, network.network)


def _with_populations(learner: Learner, network: Network) -> Learner:
    """Wrap the learner to support masked fabric nodes, if the network has such fabrics."""
    if not any(buffer.name.endswith("living") for spec in network.layers.values() for buffer in spec.buffers()):
        return learner
    from volumetric.train.populations import with_populations

    return with_populations(learner, network)
