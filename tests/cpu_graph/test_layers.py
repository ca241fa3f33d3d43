"""Every layer on the CPU, forward and gradients, against the interpreter in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cpu_graph.harness import agree, graphs
from tests.layers.cases import CASES
from tests.layers.test_vjp import arrays
from volumetric._typing import Array
from volumetric.layers import Embedding
from volumetric.runtime.graph import Graph, GraphBuilder, NumpyGraphs, differentiate
from volumetric.runtime.graph.rules import Scope

TOLERANCE = 1e-5


def layer_graph(name: str) -> tuple[Graph, dict[str, Array], list[Array]]:
    """A layer's output, the gradients of its parameters and of its input; parameters; inputs."""
    spec, shape = CASES[name]
    p, x = arrays(spec, shape, seed=len(name))
    p = {key: value.astype(np.float32) for key, value in p.items()}
    whole = isinstance(spec, Embedding)
    x = x.astype(np.int32 if whole else np.float32)
    work = GraphBuilder()
    at = work.input("x", x.shape, "int32" if whole else "float32")
    y = Scope(work=work, param=work.stored, path="layer").emit(spec, at)
    gy = np.random.default_rng(1).standard_normal(work.shape(y)).astype(np.float32)
    seed = work.input("gy", gy.shape)
    wanted = [work.stored(key, value.shape) for key, value in p.items()] + ([] if whole else [at])
    grads = differentiate(work, {y: seed}, wanted)
    return work.finish([y, *(grads[i] for i in wanted if i in grads)]), p, [x, gy]


@pytest.mark.parametrize("name", CASES)
def test_a_layer_agrees_with_the_interpreter(name: str) -> None:
    graph, params, inputs = layer_graph(name)
    results = []
    devices: list[Any] = [graphs(2), NumpyGraphs(np.float64)]
    for device in devices:
        store = device.store()
        for key, value in params.items():
            store.put(key, value)
        results.append(device.compile(graph, store).run(inputs))
    for i, (got, want) in enumerate(zip(*results, strict=True)):
        agree(got, want.astype(np.float32), f"output {i}", TOLERANCE)
