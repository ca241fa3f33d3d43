"""Every layer on the CPU, forward and gradients, against the interpreter in float64."""

from __future__ import annotations

import pytest

from tests.cpu_graph.harness import graphs
from tests.graph.agreement import check_layer
from tests.layers.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_a_layer_agrees_with_the_interpreter(name: str) -> None:
    check_layer(name, graphs(2))
