"""Every layer as a graph: forward and gradients against NumPy code that knows nothing of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.examples import CASES
from tests.layers.test_vjp import IN_TRAINING, NOISE, a_pass, arrays
from tests.oracles import oracle
from volumetric.base.errors import UnsupportedError
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.layers import LAYERS, Embedding, LayerSpec
from volumetric.layers.emit_scope import GraphTraining, Scope

TOLERANCE = {np.float32: 1e-5, np.float64: 1e-9}


def run_layer(
    spec: LayerSpec, p: dict[str, np.ndarray], x: np.ndarray, gy: np.ndarray, dtype: type, *, train: bool = False
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Output, and gradients and new values of buffers by name; ``"input"`` is the gradient of x, where it has one."""
    work = GraphBuilder()
    training = None
    if train:
        noise = work.constant(np.array(NOISE, np.int32), "noise")
        training = GraphTraining(
            buffers={s.name: work.stored_tensor(s.name, s.shape) for s in spec.buffers()}, noise=noise
        )
    whole = isinstance(spec, Embedding)
    at = work.input("x", x.shape, "int32" if whole else "float32")
    y = Scope(work=work, param=work.stored_tensor, path="layer", training=training).emit(spec, at)
    changed = {} if training is None else training.buffers
    seed = work.input("gy", gy.shape)
    wanted = {s.name: work.stored_tensor(s.name, s.shape) for s in spec.params()}
    wanted |= {} if whole else {"input": at}
    grads = differentiate(work, {y: seed}, wanted.values())
    names = [name for name, i in wanted.items() if i in grads]
    device = NumpyGraphs(dtype)
    store = device.store()
    for name, value in p.items():
        store.write(name, value)
    graph = work.finish([y, *(grads[wanted[name]] for name in names), *changed.values()])
    out, *found = device.compile(graph, store).run([x, gy])
    return out, dict(zip([*names, *changed], found, strict=True))


def close(got: np.ndarray, want: np.ndarray, tolerance: float, what: str) -> None:
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    scale = max(np.abs(want).max(initial=0), 1e-3)
    np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=tolerance, err_msg=what)


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("name", "train"), [*((name, False) for name in CASES), *((name, True) for name in IN_TRAINING)]
)
def test_a_graph_is_the_layer(name: str, train: bool, dtype: type) -> None:
    spec, shape = CASES[name]
    p, x = arrays(spec, shape, seed=len(name))
    p = {key: value.astype(dtype) for key, value in p.items()}
    x = x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x.astype(np.int32)
    training = a_pass(spec)
    numpy = oracle(spec)
    y, saved = oracle(spec).train_forward(p, x, training=training) if train else numpy.forward(p, x)
    gy = np.random.default_rng(1).standard_normal(y.shape).astype(dtype)
    want = numpy.vjp(p, saved, gy)
    out, grads = run_layer(spec, p, x, gy, dtype, train=train)
    close(out, y, TOLERANCE[dtype], "output")
    expected = dict(want.params)
    if want.inputs[0] is not None:
        expected["input"] = want.inputs[0]
    expected |= training.changes
    assert not train or set(training.changes) == {s.name for s in spec.buffers()}
    assert set(grads) <= set(expected)
    for key, value in expected.items():
        assert value is not None, key
        found = grads.get(key)
        close(np.zeros_like(value) if found is None else found, value, TOLERANCE[dtype], key)


def test_every_kind_of_layer_writes_its_graph() -> None:
    assert [kind for kind, spec in LAYERS.items() if spec.emit is LayerSpec.emit] == []


def test_a_kind_that_writes_none_is_refused() -> None:
    class Odd(LayerSpec):
        kind = "odd"

    work = GraphBuilder()
    x = work.input("x", (2, 3))
    with pytest.raises(UnsupportedError, match=r"odd at 1\.0\.0 does not define emit"):
        Scope(work=work, param=work.stored_tensor, path="1.0.0").emit(Odd(), x)
