"""Every layer's VJP against central differences in float64, for every input and every parameter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.examples import CASES
from tests.layers.graphed import graphed
from tests.oracles.training import Training
from volumetric.layers import LAYERS, Embedding, LayerSpec

STEP = 3e-5
"""Of differences: truncation and rounding stay below a tenth of the tolerance."""
TOLERANCE = 1e-6
NOISE = (17, 4)
"""Key of passes of training."""


def arrays(spec: LayerSpec, shape: tuple[int, ...], seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    rng = np.random.default_rng(seed)
    p = {s.name: rng.standard_normal(s.shape) * 0.5 + (0.6 if s.init == "ones" else 0.0) for s in spec.params()}
    p |= {s.name: np.abs(rng.standard_normal(s.shape)) + (s.init == "ones") for s in spec.buffers()}
    x = rng.integers(0, spec.num_embeddings, shape) if isinstance(spec, Embedding) else rng.standard_normal(shape)
    return p, x


def a_pass(spec: LayerSpec) -> Training:
    """A pass of training in which a layer may change its buffers."""
    return Training(learned=frozenset(s.name for s in spec.buffers()), path="layer", noise=NOISE)


def computes_otherwise(spec: LayerSpec) -> bool:
    """Whether a layer computes something else while training."""
    children = spec.children().values()
    return spec.batch_statistics == "training" or spec.draws or any(map(computes_otherwise, children))


MOST = 13
"""Of how many numbers of an array gradients are looked at, from its first to its last at equal steps."""


def differences(loss, at: np.ndarray, most: int | None = None) -> np.ndarray:
    """Gradient by central differences, of at most so many numbers of an array; NaN of the others."""
    gradient = np.full_like(at, np.nan)
    count = at.size if most is None else min(most, at.size)
    for place in np.linspace(0, at.size - 1, count).round().astype(int):
        i = np.unravel_index(place, at.shape)
        kept = at[i]
        at[i] = kept + STEP
        above = loss()
        at[i] = kept - STEP
        gradient[i] = (above - loss()) / (2 * STEP)
        at[i] = kept
    return gradient


IN_TRAINING = [name for name, (spec, _) in CASES.items() if computes_otherwise(spec)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "training"), [*((name, False) for name in CASES), *((name, True) for name in IN_TRAINING)]
)
def test_vjp_equals_central_differences(name: str, training: bool) -> None:
    spec, shape = CASES[name]
    p, x = arrays(spec, shape, seed=len(name))

    def forward() -> tuple[np.ndarray, Any]:
        return graphed(spec).train_forward(p, x, training=a_pass(spec)) if training else graphed(spec).forward(p, x)

    y, saved = forward()
    gy = np.random.default_rng(1).standard_normal(y.shape)
    grads = graphed(spec).vjp(p, saved, gy)

    def loss() -> float:
        return float((forward()[0] * gy).sum())

    assert set(grads.params) == {s.name for s in spec.params()}
    checks = {key: (grads.params[key], p[key]) for key in grads.params}
    if np.issubdtype(x.dtype, np.floating):
        assert grads.inputs[0] is not None
        checks["input"] = (grads.inputs[0], x)
    else:
        assert grads.inputs == (None,)
    for what, (got, at) in checks.items():
        want = differences(loss, at, MOST)
        assert got.shape == at.shape, what
        assert np.isfinite(want).sum() == min(MOST, at.size), what
        scale = max(np.nanmax(np.abs(want)), 1e-3)
        got = np.where(np.isnan(want), want, got)
        np.testing.assert_allclose(got / scale, want / scale, rtol=0, atol=TOLERANCE, err_msg=what)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forward_and_vjp_keep_the_dtype(name: str, dtype: type) -> None:
    spec, shape = CASES[name]
    p, x = arrays(spec, shape, seed=2)
    p = {key: value.astype(dtype) for key, value in p.items()}
    x = x.astype(dtype) if np.issubdtype(x.dtype, np.floating) else x
    y, saved = graphed(spec).forward(p, x)
    assert y.dtype == dtype
    grads = graphed(spec).vjp(p, saved, np.ones_like(y))
    assert all(g.dtype == dtype for g in grads.params.values())
    assert all(g is None or g.dtype == dtype for g in grads.inputs)


@pytest.mark.parametrize("name", CASES)
def test_output_shape_is_what_forward_makes(name: str) -> None:
    spec, shape = CASES[name]
    p, x = arrays(spec, shape, seed=3)
    assert spec.output_shape(shape) == graphed(spec).forward(p, x)[0].shape


def test_every_kind_has_a_case() -> None:
    def kinds(spec: LayerSpec) -> set[str]:
        children = spec.children().values()
        return {spec.kind}.union(*(kinds(child) for child in children))

    assert set().union(*(kinds(spec) for spec, _ in CASES.values())) == set(LAYERS)
