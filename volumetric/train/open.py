"""Learners by the name of a device. The module of a device is imported only when it is asked for."""

from __future__ import annotations

from volumetric.errors import UnsupportedError
from volumetric.runtime.open import open_device
from volumetric.train.learner import OpenLearner
from volumetric.train.reference import ReferenceLearner


def open_learner(device: str = "cpu", *, threads: int | None = None) -> OpenLearner:
    """Return what makes a learner on `device`, which is named as `open_device` takes it.

    Raises
    ------
    DeviceError
        There is no such device.
    UnsupportedError
        It does not train.
    """
    if device == "reference":
        return ReferenceLearner
    from volumetric.train.device import learner_on

    opened = open_device(device, threads=threads)
    graphs = getattr(opened, "graphs", None)
    if graphs is None:
        raise UnsupportedError(f"device {device!r} does not train", hint="train on cpu, gpu or reference")
    return learner_on(opened)  # pyright: ignore[reportArgumentType]  (it has graphs)
