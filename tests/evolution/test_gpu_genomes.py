"""Genomes on a GPU give what they give on the CPU, within float32."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.evolution.test_linked import wild
from volumetric.base.errors import ShapeError, UnsupportedError
from volumetric.devices.gpu import GpuDevice
from volumetric.evolution import LinkedPool, activate


@cache
def gpu(binding: int | None = None) -> GpuDevice:
    return GpuDevice(narrow={} if binding is None else {"max_binding": binding})


@pytest.mark.parametrize("samples", [1, 7, 130])
def test_every_genome_and_sample(samples: int, rng: np.random.Generator) -> None:
    pool = wild(False)
    x = rng.normal(size=(samples, 3)).astype(np.float32)
    program = LinkedPool(pool).on_gpu(gpu())
    expected = activate(pool, x)
    np.testing.assert_allclose(program.activate(x), expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
    program.close()


def test_inputs_of_its_own_for_each_genome(rng: np.random.Generator) -> None:
    pool = wild(False)
    program = LinkedPool(pool).on_gpu(gpu())
    for samples in (2, 5):
        x = rng.normal(size=(60, samples, 3)).astype(np.float32)
        expected = activate(pool, x)
        np.testing.assert_allclose(program.activate(x), expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
    program.close()


def test_a_population_beyond_one_binding_is_divided(rng: np.random.Generator) -> None:
    pool = wild(False)
    device = gpu(4096)
    x = rng.normal(size=(9, 3)).astype(np.float32)
    program = LinkedPool(pool).on_gpu(device)
    expected = activate(pool, x)
    np.testing.assert_allclose(program.activate(x), expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())
    assert len(program._parts) > 1
    program.close()


def test_recurrent_genomes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="recurrent"):
        LinkedPool(wild(True)).on_gpu(gpu())


@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 4), (7, 5, 3), (1, 1, 5, 3)])
def test_inputs_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    program = LinkedPool(wild(False)).on_gpu(gpu())
    with pytest.raises(ShapeError, match="inputs have shape"):
        program.activate(np.zeros(shape, np.float32))
    program.close()
