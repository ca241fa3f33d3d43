"""Learners by the name of a device. The module of a device is imported only when it is asked for."""

from __future__ import annotations

import os
from typing import Final

import numpy as np

from volumetric.errors import UnsupportedError
from volumetric.runtime.device import Device
from volumetric.runtime.open import open_device
from volumetric.runtime.reference import ReferenceDevice
from volumetric.train.learner import OpenLearner
from volumetric.train.reference import ReferenceLearner

DEFAULT: Final = "cpu"


def open_learner(device: str | Device | None = None, *, threads: int | None = None) -> OpenLearner:
    """Return what makes a learner on `device`: its name, as `open_device` takes it, or an open device.

    None: what the environment variable VOLUMETRIC_DEVICE names, else the CPU.

    Raises
    ------
    DeviceError
        There is no such device.
    UnsupportedError
        It does not train.
    """
    name = device if device is not None else os.environ.get("VOLUMETRIC_DEVICE") or DEFAULT
    if name == "reference" or (isinstance(name, ReferenceDevice) and name.dtype is np.float32):
        return ReferenceLearner
    from volumetric.train.device import learner_on

    opened = open_device(name, threads=threads) if isinstance(name, str) else name
    if getattr(opened, "graphs", None) is None:
        raise UnsupportedError(f"device {opened.info.name!r} does not train", hint="train on cpu, gpu or reference")
    return learner_on(opened)  # pyright: ignore[reportArgumentType]  (it has graphs)
