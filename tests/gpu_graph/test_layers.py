"""Every layer on the GPU, forward and gradients, against the interpreter."""

from __future__ import annotations

import pytest

from tests.devices import narrowed_graphs
from tests.graph.agreement import check_layer
from tests.layers.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_a_layer_agrees_with_the_interpreter(name: str) -> None:
    check_layer(name, narrowed_graphs("native"))
