"""Which adapter is opened, and what is said when none fits."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from volumetric.base.errors import DeviceError
from volumetric.devices.gpu import GpuDevice, list_gpus
from volumetric.devices.gpu.adapters import GpuAdapter, choose_adapter
from volumetric.devices.gpu.webgpu.webgpu_implementation import NAMES


def adapter(name: str, *offers: str, kind: str = "DiscreteGPU") -> GpuAdapter:
    info = {"device": name, "description": "driver 1", "adapter_type": kind}
    offer = SimpleNamespace(info=info | {"backend_type": "Vulkan"}, features=frozenset(), limits={})
    return GpuAdapter(dict.fromkeys(offers or NAMES, offer), {} if "dawn" in (offers or NAMES) else {"dawn": "too old"})


RANKED = [adapter("NVIDIA H100"), adapter("NVIDIA T4"), adapter("llvmpipe (LLVM 15)")]


@pytest.mark.parametrize(
    ("selector", "index"), [(None, 0), ("0", 0), ("1", 1), ("t4", 1), ("nvidia", 0), ("llvmpipe", 2), ("LLVM 15", 2)]
)
def test_choose(selector: str | None, index: int) -> None:
    assert choose_adapter(RANKED, selector) == index


def test_plain_gpu_takes_a_software_adapter_only_where_it_is_alone() -> None:
    assert choose_adapter(RANKED[2:], None) == 0


@pytest.mark.parametrize("selector", ["3", "radeon", ""])
def test_what_does_not_exist_is_listed(selector: str) -> None:
    if not selector:
        with pytest.raises(DeviceError, match=r"no .* GPU was found"):
            choose_adapter([], None)
        return
    with pytest.raises(DeviceError, match=f"no GPU is called '{selector}'") as error:
        choose_adapter(RANKED, selector)
    assert "gpu:1 NVIDIA T4" in (error.value.hint or "")


@pytest.mark.thorough
def test_there_is_an_adapter_and_its_name_opens_it() -> None:
    gpus = list_gpus()
    assert gpus, "tests need a Vulkan driver: install mesa-vulkan-drivers"
    for i, info in enumerate(gpus):
        assert info.name == f"gpu:{i}"
        assert info.kind == "gpu"
    assert [info.software for info in gpus] == sorted(info.software for info in gpus), "software adapters come last"
    opened = GpuDevice("0").info
    assert (opened.name, opened.description, opened.software) == (gpus[0].name, gpus[0].description, gpus[0].software)
    assert opened.details.items() > gpus[0].details.items(), "an open one says what was measured too"


@pytest.mark.thorough
def test_the_subgroup_size_is_one_that_the_shaders_can_use(native_device: GpuDevice) -> None:
    size = native_device.context.caps.subgroup_size
    assert size in (0, 4, 8, 16, 32, 64, 128)
