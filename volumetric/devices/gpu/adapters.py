"""Adapters: the available GPUs in order of preference, and their selection by name or number."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from volumetric.base.errors import DeviceError
from volumetric.run.device import DeviceInfo

_log = logging.getLogger(__name__)

_RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "VirtualGPU": 3, "CPU": 4}
_BACKEND = "Metal" if sys.platform == "darwin" else "Vulkan"
_DRIVER_HINT = (
    "install the GPU's Vulkan driver (Debian and Ubuntu: libvulkan1, mesa-vulkan-drivers), or use device='cpu'"
)
_PACKAGE_HINT = "wgpu is not whole in this environment: pip install --force-reinstall wgpu, or use device='cpu'"


def ranked_adapters() -> list[Any]:
    """Adapters of this machine, best first: discrete, integrated, virtual, software.

    Only one backend is listed: through OpenGL the same card would appear a second time, slower and with fewer features.

    Raises
    ------
    DeviceError : wgpu or its library cannot be loaded
    """
    try:
        import wgpu
        from wgpu.backends.wgpu_native.extras import set_instance_extras
    except (ImportError, OSError, RuntimeError) as error:
        raise DeviceError(f"wgpu cannot be loaded: {error}", hint=_PACKAGE_HINT) from error
    # Without a session (in a container, over ssh) the drivers' Wayland part writes an error to stderr on each listing.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    try:
        set_instance_extras(backends=[_BACKEND])
    except RuntimeError:
        # Another user of wgpu in this process came first; its adapters of other backends are filtered out below.
        _log.debug("the wgpu instance exists already")
    try:
        adapters = wgpu.gpu.enumerate_adapters_sync()
    except RuntimeError as error:
        raise DeviceError(f"GPUs cannot be listed: {error}", hint=_DRIVER_HINT) from error
    return sorted((a for a in adapters if a.info["backend_type"] == _BACKEND), key=_rank)


def why_no_adapter() -> str:
    """Return why `ranked_adapters` finds none, as far as it can be determined."""
    if _BACKEND == "Vulkan" and sys.platform != "win32":
        try:
            ctypes.CDLL("libvulkan.so.1")
        except OSError:
            return "there is no Vulkan loader (libvulkan.so.1)"
    return f"{_BACKEND} lists no adapter"


def _rank(adapter: Any) -> int:
    return _RANK.get(adapter.info["adapter_type"], 2)


def is_software(adapter: Any) -> bool:
    """Whether the adapter is a software renderer on the CPU, such as llvmpipe."""
    return adapter.info["adapter_type"] == "CPU"


def describe(adapter: Any, index: int) -> DeviceInfo:
    """Return the facts to print about the adapter at `index` of `ranked_adapters`."""
    info = adapter.info
    limits = adapter.limits
    return DeviceInfo(
        name=f"gpu:{index}",
        kind="gpu",
        description=f"{info['device']}, {info['backend_type']}, {info['adapter_type']}",
        software=is_software(adapter),
        details={
            "driver": info["description"],
            "subgroups": "subgroup" in adapter.features,
            "immediates": "immediates" in adapter.features,
            "timestamps": "timestamp-query" in adapter.features,
            "f16": "shader-f16" in adapter.features,
            "max_buffer_mib": limits["max-buffer-size"] >> 20,
            "max_binding_mib": limits["max-storage-buffer-binding-size"] >> 20,
            "workgroup_memory_kib": limits["max-compute-workgroup-storage-size"] >> 10,
            "workgroup_invocations": limits["max-compute-invocations-per-workgroup"],
        },
    )


def choose_adapter(adapters: Sequence[Any], selector: str | None) -> int:
    """Index of the adapter selected by `selector`: a number, part of a name, or None for the best.

    None selects a software adapter only if there is no other one.

    Raises
    ------
    DeviceError : there is no adapter, or none matches; the message lists the available ones
    """
    if not adapters:
        raise DeviceError(f"no {_BACKEND} GPU was found: {why_no_adapter()}", hint=_DRIVER_HINT)
    if selector is None:
        return 0
    if selector.isdecimal() and int(selector) < len(adapters):
        return int(selector)
    folded = selector.casefold()
    for i, adapter in enumerate(adapters):
        if folded in adapter.info["device"].casefold():
            return i
    names = "; ".join(f"gpu:{i} {adapter.info['device']}" for i, adapter in enumerate(adapters))
    raise DeviceError(f"no GPU is called {selector!r}", hint=f"there are: {names}")
