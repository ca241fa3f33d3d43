"""Adapters: the available GPUs in order of preference, and their selection by name or number.

A GPU has one place in the order, whichever WebGPU implementations offer it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu.kernels.dispatch import MATRIX_LANES
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES, VARIABLE, implementation_by_hand, webgpu
from volumetric.run.device import DeviceInfo

_RANK = {"DiscreteGPU": 0, "IntegratedGPU": 1, "Unknown": 2, "VirtualGPU": 3, "CPU": 4}
_BACKEND = "Metal" if sys.platform == "darwin" else "Vulkan"
_DRIVER_HINT = (
    "install the GPU's Vulkan driver (Debian and Ubuntu: libvulkan1, mesa-vulkan-drivers), or use device='cpu'"
)
_SHOWN_LIMITS = {
    "max_buffer_mib": ("max-buffer-size", 20),
    "max_binding_mib": ("max-storage-buffer-binding-size", 20),
    "workgroup_memory_kib": ("max-compute-workgroup-storage-size", 10),
    "workgroup_invocations": ("max-compute-invocations-per-workgroup", 0),
    "storage_buffers": ("max-storage-buffers-per-shader-stage", 0),
}
"""Name in `describe` → limit, and the bits to shift it by."""


@dataclass(frozen=True, slots=True)
class GpuAdapter:
    """A GPU, as the WebGPU implementations see it.

    Attributes
    ----------
    offers : implementation → its adapter, which opens the GPU; at least one
    refusals : implementation → why it does not offer this GPU
    key : model, and number among the GPUs of this model
    """

    offers: Mapping[str, Any]
    refusals: Mapping[str, str] = field(default_factory=dict)
    key: tuple[object, ...] = ()

    @property
    def info(self) -> Mapping[str, Any]:
        """Name, driver and type, in the words of the first implementation that offers it."""
        return next(self.offers[name].info for name in NAMES if name in self.offers)

    @property
    def is_software(self) -> bool:
        """Whether it is a software renderer on the CPU, such as llvmpipe."""
        return self.info["adapter_type"] == "CPU"

    @property
    def identity(self) -> str:
        """Name and driver."""
        return f"{self.info['device']} {self.info['description']}"

    def listed_again(self) -> GpuAdapter:
        """Return this GPU with fresh offers: each of them opens one device. Raises `DeviceError` if it is gone."""
        for adapter in ranked_adapters():
            if adapter.key == self.key:
                return adapter
        raise DeviceError(f"{self.info['device']} is not listed any more", hint="`volumetric devices` lists the GPUs")


def ranked_adapters() -> list[GpuAdapter]:
    """Adapters of this machine, best first: discrete, integrated, virtual, software.

    Only one backend is listed: through OpenGL the same card would appear a second time, slower and with fewer features.

    Raises
    ------
    DeviceError : the implementation of VOLUMETRIC_WEBGPU cannot be loaded, or one cannot and the other offers nothing
    """
    # Without a session (in a container, over ssh) the drivers' Wayland part writes an error to stderr on each listing.
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    wanted = implementation_by_hand()
    listed: dict[str, dict[tuple[object, ...], Any]] = {}
    refusals: dict[str, str] = {}
    errors: dict[str, DeviceError] = {}
    for name in NAMES:
        if name == "dawn" and wanted is None and importlib.util.find_spec("wgpudawn") is None:
            refusals[name] = 'not installed: pip install "volumetric-engine[dawn]"'
            continue
        try:
            listed[name] = _numbered(webgpu(name).adapters(_BACKEND))
        except DeviceError as error:
            if name == wanted:
                raise
            errors[name], refusals[name] = error, str(error)
    keys = dict.fromkeys(key for by_key in listed.values() for key in by_key)
    if not keys and errors:
        raise next(iter(errors.values()))
    for name in listed:
        remarks = webgpu(name).remarks
        refusals[name] = f"its driver is not enough for it{f': {remarks}' if remarks else ''}"
    adapters = [
        GpuAdapter(
            {name: by_key[key] for name, by_key in listed.items() if key in by_key},
            {name: why for name, why in refusals.items() if key not in listed.get(name, {})},
            key,
        )
        for key in keys
    ]
    return sorted(adapters, key=lambda adapter: _RANK.get(adapter.info["adapter_type"], 2))


def _numbered(adapters: Sequence[Any]) -> dict[tuple[object, ...], Any]:
    """Key the adapters by name and number: equal cards have the same order in every implementation.

    Numbers of makers and models would not do: wgpu does not know them on Metal.
    """
    count = Counter[str]()
    keyed = {}
    for adapter in adapters:
        model = adapter.info["device"]
        keyed[model, count[model]] = adapter
        count[model] += 1
    return keyed


def why_no_adapter() -> str:
    """Return why `ranked_adapters` finds none, as far as it can be determined."""
    if _BACKEND == "Vulkan" and sys.platform != "win32":
        try:
            ctypes.CDLL("libvulkan.so.1")
        except OSError:
            return "there is no Vulkan loader (libvulkan.so.1)"
    return f"{_BACKEND} lists no adapter"


def describe(adapter: GpuAdapter, index: int, implementation: str, reason: str) -> DeviceInfo:
    """Return the facts to print about the adapter at `index` of `ranked_adapters`.

    Parameters
    ----------
    implementation, reason : the one that opens it, and why
    """
    offer = adapter.offers[implementation]
    info = offer.info
    return DeviceInfo(
        name=f"gpu:{index}",
        kind="gpu",
        description=f"{info['device']}, {info['backend_type']}, {info['adapter_type']}",
        software=adapter.is_software,
        details={
            "driver": info["description"],
            **_offer_details(implementation, offer),
            "webgpu": f"{implementation}: {reason}",
            "implementations": {name: _implementation_details(adapter, name) for name in NAMES},
        },
    )


def _offer_details(implementation: str, offer: Any) -> dict[str, Any]:
    library, limits = webgpu(implementation), offer.limits
    features, lanes = library.features(offer), library.subgroup_sizes(offer)
    return {
        "subgroups": "subgroups" in features,
        "immediates": "immediates" in features,
        "timestamps": "timestamp-query" in features,
        "f16": "shader-f16" in features,
        "matrix_units": library.has_matrix_units(offer) and lanes == (MATRIX_LANES, MATRIX_LANES),
        **{name: limits[limit] >> bits for name, (limit, bits) in _SHOWN_LIMITS.items()},
    }


def _implementation_details(adapter: GpuAdapter, name: str) -> dict[str, Any]:
    if name not in adapter.offers:
        return {"unusable": adapter.refusals.get(name, "it does not offer this GPU")}
    return {"version": webgpu(name).version, **_offer_details(name, adapter.offers[name])}


def choose_adapter(adapters: Sequence[GpuAdapter], selector: str | None) -> int:
    """Index of the adapter selected by `selector`: a number, part of a name, or None for the best.

    None selects a software adapter only if there is no other one, and none that the implementation of VOLUMETRIC_WEBGPU
    does not offer.

    Raises
    ------
    DeviceError : there is no adapter, or none matches; the message lists the available ones
    """
    if not adapters:
        raise DeviceError(f"no {_BACKEND} GPU was found: {why_no_adapter()}", hint=_DRIVER_HINT)
    if selector is None:
        wanted = implementation_by_hand()
        usable = [i for i, adapter in enumerate(adapters) if wanted is None or wanted in adapter.offers]
        if not usable:
            raise DeviceError(
                f"{VARIABLE}={wanted}: it offers no GPU here: {adapters[0].refusals.get(str(wanted), '')}",
                hint=f"unset {VARIABLE}, or use device='cpu'",
            )
        return usable[0]
    if selector.isdecimal() and int(selector) < len(adapters):
        return int(selector)
    folded = selector.casefold()
    for i, adapter in enumerate(adapters):
        if folded in adapter.info["device"].casefold():
            return i
    names = "; ".join(f"gpu:{i} {adapter.info['device']}" for i, adapter in enumerate(adapters))
    raise DeviceError(f"no GPU is called {selector!r}", hint=f"there are: {names}")
