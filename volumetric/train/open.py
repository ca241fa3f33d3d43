"""Learners by the name of a device. The module of a device is imported only when it is asked for."""

from __future__ import annotations

import dataclasses

from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.clocked import Clocked
from volumetric.devices.open import AnyDevice, open_device
from volumetric.network import Network
from volumetric.network.weights import Params
from volumetric.train.learner import Learner, LearnerOptions, OpenLearner, Windowed
from volumetric.train.modes import Systolic, TargetPropagation


def open_learner(device: AnyDevice = "auto", *, threads: int | None = None) -> OpenLearner:
    """Return what makes a learner on `device`: its name, as `open_device` takes it, or an open device.

    Raises
    ------
    DeviceError
        There is no such device.
    UnsupportedError
        It does not train.
    """
    opened = open_device(device, threads=threads)
    from volumetric.train.device import learner_on

    if getattr(opened, "graphs", None) is None:
        raise UnsupportedError(f"device {opened.info.name!r} does not train", hint="train on cpu, gpu or reference")
    return learner_on(opened)  # pyright: ignore[reportArgumentType]  (it has graphs)


def bind(opens: OpenLearner, network: Network | Clocked, params: Params, options: LearnerOptions) -> Learner:
    """Return the learner of a network, or of a machine.

    Raises
    ------
    SpecError : the mode does not train machines
    UnsupportedError : `opens` makes learners that do not
    """
    if isinstance(network, Network):
        return _with_populations(opens(network, params, options), network)
    if not isinstance(options.mode, Systolic | TargetPropagation):
        raise SpecError(
            f"mode {options.mode.kind!r} does not train clocked networks",
            hint="mode=Systolic() does, and mode=TargetPropagation()",
        )
    learner = opens(network.network, params, dataclasses.replace(options, clocked=network))
    if not isinstance(learner, Windowed):
        raise UnsupportedError(f"{type(learner).__name__} does not train clocked networks", hint="name a device")
    return _with_populations(learner, network.network)


def _with_populations(learner: Learner, network: Network) -> Learner:
    """Let nodes of fabrics come and go, where there are buffers that say which live."""
    if not any(buffer.name.endswith("living") for spec in network.layers.values() for buffer in spec.buffers()):
        return learner
    from volumetric.train.populations import with_populations

    return with_populations(learner, network)
