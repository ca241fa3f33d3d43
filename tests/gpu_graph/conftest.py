"""One GPU for all tests of graphs: pipelines are compiled once."""

from __future__ import annotations

from functools import cache

import pytest

from tests.gpu.harness import NARROWED
from volumetric.runtime.gpu import GpuDevice
from volumetric.runtime.gpu.graph import GpuGraphs


@cache
def open_graphs(name: str) -> GpuGraphs:
    """One device for each set of capabilities, for the whole run."""
    return GpuDevice(narrow=NARROWED[name]).graphs()


@pytest.fixture
def graphs() -> GpuGraphs:
    """The adapter as it is."""
    return open_graphs("native")
