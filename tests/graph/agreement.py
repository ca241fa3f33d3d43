"""What tests hold all graph devices to: operations and layers as the interpreter computes them in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.layers.cases import CASES
from tests.layers.test_vjp import arrays
from volumetric._typing import Array
from volumetric.layers import Embedding
from volumetric.runtime.graph import Graph, GraphBuilder, NumpyGraphs, differentiate
from volumetric.runtime.graph.rules import Scope

LAYER_TOLERANCE = 1e-5
TOLERANCE = 4e-6


def agree(got: np.ndarray, want: np.ndarray, what: str, tolerance: float = TOLERANCE) -> None:
    """Odd numbers are equal, the others differ by no more than `tolerance` of the largest."""
    assert got.shape == want.shape
    assert got.dtype == np.float32
    odd = ~np.isfinite(want)
    want = want.astype(np.float64)
    np.testing.assert_array_equal(got[odd], want[odd], err_msg=what)
    scale = np.abs(want[~odd]).max(initial=0.1)
    np.testing.assert_allclose(got[~odd] / scale, want[~odd] / scale, rtol=0, atol=tolerance, err_msg=what)


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
    wanted = [work.stored(s.name, s.shape) for s in spec.params()] + ([] if whole else [at])
    grads = differentiate(work, {y: seed}, wanted)
    return work.finish([y, *(grads[i] for i in wanted if i in grads)]), p, [x, gy]


def check_layer(name: str, device: Any) -> None:
    """Run a layer forward and backward on `device` and compare with the interpreter."""
    graph, params, inputs = layer_graph(name)
    results = []
    for one in (device, NumpyGraphs(np.float64)):
        store = one.store()
        for key, value in params.items():
            store.put(key, value)
        results.append(one.compile(graph, store).run(inputs))
    for i, (got, want) in enumerate(zip(*results, strict=True)):
        agree(got, want.astype(np.float32), f"output {i}", LAYER_TOLERANCE)
