"""The devices that the tests of a file share: opened once, so that kernels and pipelines are compiled once.

They are given back when the file ends: an open GPU keeps every pipeline it ever compiled, which is some 0.5 MB each on
a software GPU, and thousands of them would need more memory than a small machine has.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.gpu.harness import LEAST, NARROWED, ROOMY
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.devices.named_devices import open_device
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.network import Params
from volumetric.run.device import DeviceInfo, Executable, RunOptions
from volumetric.run.plan import Plan

FAST = ("cpu", "gpu")
"""Devices with kernels of their own."""
DEVICES = ("reference", *FAST)


@cache
def device(name: str) -> Any:
    """An open device: its type depends on the name."""
    return ReferenceDevice() if name == "reference" else open_device(name, threads=2)


@cache
def graphs(name: str) -> Any:
    """What compiles tensor graphs on a device."""
    return device(name).graphs()


@cache
def narrowed(name: str) -> GpuDevice:
    """The GPU with one of the sets of capabilities that tests force."""
    return GpuDevice(narrow={"roomy": ROOMY, "least": LEAST}.get(name) or NARROWED[name])


@cache
def narrowed_graphs(name: str) -> GpuGraphs:
    """What compiles tensor graphs on it."""
    return narrowed(name).graphs()


def release() -> None:
    """Forget the open devices."""
    for opened in (device, graphs, narrowed, narrowed_graphs):
        opened.cache_clear()


def command_buffers() -> int:
    """Command buffers that wgpu-native knows: those that are finished and not submitted. Dawn frees them itself."""
    if narrowed("native").context.webgpu.name != "wgpu":
        pytest.skip("only wgpu-native keeps finished command buffers")
    import wgpu.backends.wgpu_native

    return wgpu.diagnostics.wgpu_native_counts.get_dict()["CommandBuffer"]["count"]


class Bare:
    """A device of somebody else that compiles networks and does nothing beyond what `Device` asks for."""

    info = DeviceInfo(name="bare", kind="reference", description="compiles, and no more")

    def compile(self, plan: Plan, params: Params, options: RunOptions | None = None) -> Executable:
        return ReferenceDevice().compile(plan, params, options)
