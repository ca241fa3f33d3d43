"""Pools that are linked once give what activation gives, for any threads and rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.evolution.test_activate import WILD
from volumetric.base.errors import ShapeError, SpecError
from volumetric.evolution import EvolutionConfig, GenomeConfig, LinkedPool, Population, activate
from volumetric.evolution import linked_pool as linked_module
from volumetric.evolution.pool import Pool
from volumetric.evolution.problems import Table


def wild(recurrent: bool) -> Pool:
    shape = GenomeConfig(inputs=3, outputs=2, recurrent=recurrent, steps=3 if recurrent else 1)
    population = Population(EvolutionConfig(population=60, mutation=WILD, genome=shape), seed=5)
    rng = np.random.default_rng(2)
    population.evolve(Table.of(rng.normal(size=(7, 3)), rng.normal(size=(7, 2)), goal=1e9), generations=12)
    return population.pool


@pytest.mark.parametrize("recurrent", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_linked_pools_agree_with_activation(
    recurrent: bool, threads: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linked_module, "_LEAST", 4)
    pool = wild(recurrent)
    linked = LinkedPool(pool, threads=threads)
    state, other = (linked.new_state(4), linked.new_state(4)) if recurrent else (None, None)
    for _ in range(3):
        x = rng.normal(size=(60, 4, 3))
        np.testing.assert_allclose(linked.activate(x, state), activate(pool, x, other), rtol=1e-12, atol=1e-12)
    x = rng.normal(size=(5, 3))
    np.testing.assert_allclose(linked.activate(x), activate(pool, x), rtol=1e-12, atol=1e-12)


def test_other_rows_stay_as_they_are(rng: np.random.Generator) -> None:
    pool = wild(False)
    linked = LinkedPool(pool)
    x, out = rng.normal(size=(60, 1, 3)), np.full((60, 1, 2), 7.0)
    linked.activate(x, rows=np.array([3, 50]), out=out)
    np.testing.assert_allclose(out[[3, 50]], activate(pool, x)[[3, 50]], rtol=1e-12)
    assert (np.delete(out, [3, 50], axis=0) == 7.0).all()


def test_wrong_shapes() -> None:
    linked = LinkedPool(wild(True))
    with pytest.raises(ShapeError, match="inputs"):
        linked.activate(np.zeros((2, 4)))
    with pytest.raises(ShapeError, match="state"):
        linked.activate(np.zeros((2, 3)), linked.new_state(3))
    with pytest.raises(ShapeError, match="out has"):
        linked.activate(np.zeros((2, 3)), out=np.zeros((1, 2, 2)))
    with pytest.raises(SpecError, match="threads"):
        LinkedPool(linked.pool, threads=-1)
