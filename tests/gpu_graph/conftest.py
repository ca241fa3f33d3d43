"""The GPU of the tests of graphs."""

from __future__ import annotations

import pytest

from tests.devices import narrowed_graphs
from tests.gpu.harness import NARROWED
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.graph import GpuGraphs


@pytest.fixture
def graphs() -> GpuGraphs:
    """The adapter as it is."""
    return narrowed_graphs("native")


@pytest.fixture(scope="module")
def folded() -> GpuGraphs:
    """A GPU whose grids have three groups to a side, without subgroups."""
    narrow = {**NARROWED["no subgroups, no immediates"], "max_groups": 3}
    return GpuGraphs(GpuDevice(narrow=narrow).context, None)
