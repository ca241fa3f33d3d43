"""Learners by the name of a device. The module of a device is imported only when it is asked for."""

from __future__ import annotations

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.runtime.open import AnyDevice, open_device
from volumetric.runtime.reference import ReferenceDevice
from volumetric.train.learner import OpenLearner
from volumetric.train.reference import ReferenceLearner


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
    if isinstance(opened, ReferenceDevice) and opened.dtype is np.float32:
        return ReferenceLearner
    from volumetric.train.device import learner_on

    if getattr(opened, "graphs", None) is None:
        raise UnsupportedError(f"device {opened.info.name!r} does not train", hint="train on cpu, gpu or reference")
    return learner_on(opened)  # pyright: ignore[reportArgumentType]  (it has graphs)
