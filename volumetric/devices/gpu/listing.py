"""Listing GPUs without opening one."""

from __future__ import annotations

from volumetric.devices.gpu.adapters import describe, ranked_adapters
from volumetric.run.device import DeviceInfo


def list_gpus() -> list[DeviceInfo]:
    """Describe the GPUs of this machine, best first; their names open them.

    Raises
    ------
    DeviceError : the GPU library or its driver loader is missing
    """
    return [describe(adapter, i) for i, adapter in enumerate(ranked_adapters())]
