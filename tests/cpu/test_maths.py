"""Vector functions against float64."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from volumetric.devices.cpu.arena import address_of
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.maths import ACTIVATIONS, activate, erf, exp, tanh
from volumetric.devices.cpu.kernels.simd import load, load_half, store, store_half
from volumetric.graph.numeric import activations

POINTS = np.concatenate([np.linspace(-30, 30, 40_000), np.linspace(-1e-3, 1e-3, 4_000), [0.0] * 16]).astype(np.float32)
POINTS = POINTS[: len(POINTS) // 16 * 16]


@kernel
def run_activation(code, x, out, n):
    for i in range(0, n, 16):
        store(out + 4 * i, activate(code, load(x + 4 * i)))


@cache
def mapped(name):
    function = {"exp": exp, "tanh": tanh, "erf": erf}[name]

    @kernel
    def run(x, out, n):
        for i in range(0, n, 16):
            store(out + 4 * i, function(load(x + 4 * i)))

    return run


def apply(name, x):
    out = np.empty_like(x)
    mapped(name)(address_of(x), address_of(out), len(x))
    return out


@pytest.mark.thorough
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_agrees_with_its_definition(name):
    out = np.empty_like(POINTS)
    run_activation(ACTIVATIONS.index(name), address_of(POINTS), address_of(out), len(POINTS))
    want = activations.activate(name, POINTS.astype(np.float64))
    np.testing.assert_allclose(out, want, rtol=3e-7, atol=5e-7)


def test_every_activation_has_a_code():
    assert set(ACTIVATIONS) == set(activations.ACTIVATIONS)


@pytest.mark.thorough
def test_exp():
    x = np.linspace(-86, 88, 16_000).astype(np.float32)
    np.testing.assert_allclose(apply("exp", x), np.exp(x.astype(np.float64)), rtol=2.5e-7)


def test_exp_at_its_ends():
    x = np.full(16, -87.336, np.float32)
    x[1:8] = [88.7228, 88.73, 1e30, np.inf, -87.34, -104, np.nan]
    want = np.exp(np.minimum(x.astype(np.float64), 88.7229))
    want[5:7] = 0  # no subnormal numbers
    want[2:5] = np.inf
    np.testing.assert_allclose(apply("exp", x), want, rtol=2.5e-7)


def test_exp_of_masked_scores_is_zero():
    x = np.full(16, -np.inf, np.float32)
    x[1], x[2] = -1000.0, -110.0
    assert not apply("exp", x).any()


def test_tanh_and_erf():
    np.testing.assert_allclose(apply("tanh", POINTS), np.tanh(POINTS.astype(np.float64)), rtol=3e-7, atol=0)
    np.testing.assert_allclose(apply("erf", POINTS), [math.erf(v) for v in POINTS.tolist()], rtol=6e-7, atol=0)


@kernel
def halves(x, out, back, n):
    for i in range(0, n, 16):
        store_half(out + 2 * i, load(x + 4 * i))
        store(back + 4 * i, load_half(out + 2 * i))


def test_halves_round_like_numpy(rng):
    bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    edges = np.array([0, 6e-8, 2.9e-8, 3e-8, 6.1e-5, 6.09e-5, 65504, 65519, 65520, 1e9, np.inf], np.float32)
    x = np.concatenate([bits.view(np.float32), edges, -edges, np.linspace(-70000, 70000, 4002).astype(np.float32)])
    x = np.ascontiguousarray(x[~np.isnan(x)][-100_000:])
    x = x[: len(x) // 16 * 16]
    out, back = np.empty(len(x), np.float16), np.empty_like(x)
    halves(address_of(x), address_of(out), address_of(back), len(x))
    with np.errstate(over="ignore"):
        want = x.astype(np.float16)
    np.testing.assert_array_equal(out, want)
    np.testing.assert_array_equal(back, want.astype(np.float32))
