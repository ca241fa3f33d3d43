"""Listing GPUs without opening one."""

from __future__ import annotations

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.adapters import GpuAdapter, describe, ranked_adapters
from volumetric.devices.gpu.implementation_choice import choose_implementation
from volumetric.run.device import DeviceInfo


def list_gpus() -> list[DeviceInfo]:
    """Describe the GPUs of this machine, best first; their names open them.

    Raises
    ------
    DeviceError : the GPU library or its driver loader is missing
    """
    return [_describe(adapter, i) for i, adapter in enumerate(ranked_adapters())]


def _describe(adapter: GpuAdapter, index: int) -> DeviceInfo:
    try:
        chosen = choose_implementation(adapter)
    except DeviceError as error:  # the one that is named by hand does not offer it: what the other says is shown
        return describe(adapter, index, next(iter(adapter.offers)), f"it cannot be opened: {error}")
    return describe(adapter, index, chosen.name, chosen.reason)
