"""Kernels of a recording are compiled together, and one that cannot be is named."""

from __future__ import annotations

import pytest

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.kernels import elementwise
from volumetric.devices.gpu.kernels.dispatch import Dispatch

WANTED: list[Dispatch] = [elementwise.softmax(width=64 << bits) for bits in range(4)]


def test_kernels_are_compiled_together_once(native_device: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    context = native_device.context
    monkeypatch.setattr(context, "_pipelines", {})
    context.compile_all([*WANTED, *WANTED])
    made = dict(context._pipelines)
    assert len(made) == len({dispatch.key for dispatch in WANTED}) > 1
    assert [context.pipeline(dispatch) for dispatch in WANTED] == [made[key] for key in made]
    context.compile_all(WANTED)
    assert context._pipelines == made


def test_a_kernel_that_cannot_be_compiled_is_named(native_device: GpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    context = native_device.context
    monkeypatch.setattr(context, "_pipelines", {})
    create = context.webgpu.create_module
    monkeypatch.setattr(
        type(context.webgpu), "create_module", lambda self, device, name, text: create(device, name, text + "no WGSL")
    )
    context.compile_all(WANTED)
    assert context._pipelines == {}
    with pytest.raises(DeviceError, match="compiling softmax"):
        context.pipeline(WANTED[0])
