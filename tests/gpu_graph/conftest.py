"""The GPU of the tests of graphs."""

from __future__ import annotations

import pytest

from tests.devices import narrowed_graphs
from volumetric.runtime.gpu.graph import GpuGraphs


@pytest.fixture
def graphs() -> GpuGraphs:
    """The adapter as it is."""
    return narrowed_graphs("native")
