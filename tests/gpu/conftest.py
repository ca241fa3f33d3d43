"""GPU fixtures. A machine without any adapter fails these tests: a software one is part of what tests need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.devices import narrowed
from tests.gpu.harness import NARROWED, Kernel
from volumetric.devices.gpu import GpuDevice


@pytest.fixture(params=sorted(NARROWED))
def device(request: pytest.FixtureRequest) -> GpuDevice:
    """Each set of capabilities in turn."""
    return narrowed(request.param)


@pytest.fixture(params=["native", "no subgroups, no immediates"])
def fallback_device(request: pytest.FixtureRequest) -> GpuDevice:
    """The adapter as it is, and one that lacks what may be missing."""
    return narrowed(request.param)


@pytest.fixture
def native_device() -> GpuDevice:
    """The adapter as it is."""
    return narrowed("native")


@pytest.fixture
def kernel(fallback_device: GpuDevice) -> Iterator[Kernel]:
    """Runs kernels on the adapter as it is, and with the fallbacks."""
    made = Kernel(fallback_device.context)
    yield made
    made.close()


@pytest.fixture
def any_kernel(device: GpuDevice) -> Iterator[Kernel]:
    """Runs kernels with each set of capabilities in turn, the cuts made for a large GPU among them."""
    made = Kernel(device.context)
    yield made
    made.close()


@pytest.fixture
def native_kernel(native_device: GpuDevice) -> Iterator[Kernel]:
    """Runs kernels on the adapter as it is."""
    made = Kernel(native_device.context)
    yield made
    made.close()


@pytest.fixture
def roomy_kernel() -> Iterator[Kernel]:
    """Runs kernels with the workgroup memory of a large GPU, which software adapters take from the heap."""
    made = Kernel(narrowed("roomy").context)
    yield made
    made.close()


@pytest.fixture
def least_kernel() -> Iterator[Kernel]:
    """Runs kernels with no more than every WebGPU device has."""
    made = Kernel(narrowed("least").context)
    yield made
    made.close()
