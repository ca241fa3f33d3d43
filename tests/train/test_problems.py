"""Problems by name have the samples that they say, and those of other libraries say what is missing."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.train.problems import PROBLEMS, parity, spirals, waves, xor

MADE_HERE = ("xor", "parity", "spirals", "waves")


@pytest.mark.parametrize("name", MADE_HERE)
def test_samples_and_targets_go_together(name: str) -> None:
    problem = PROBLEMS[name]()
    assert len(problem.inputs) == len(problem.targets)
    assert problem.inputs.dtype == np.float32
    assert np.isfinite(problem.inputs).all()
    if problem.classes:
        assert set(np.unique(problem.targets)) == set(range(len(problem.classes)))
        assert problem.outputs == len(problem.classes)
    else:
        assert problem.outputs == problem.targets.shape[1]


def test_problems_are_what_their_names_say() -> None:
    assert [int(y) for y in xor().targets[:, 0]] == [int(a) ^ int(b) for a, b in xor().inputs]
    words = parity(5)
    assert len(words.inputs) == 32
    assert (words.targets == words.inputs.sum(1) % 2).all()
    assert np.array_equal(spirals(seed=3).inputs, spirals(seed=3).inputs)
    assert not np.array_equal(spirals(seed=3).inputs, spirals(seed=4).inputs)
    assert len(spirals(samples=40, arms=4).classes) == 4
    a, b, c, d = waves(10).inputs.T
    np.testing.assert_allclose(waves(10).targets[:, 0], np.sin(2 * a) + b * c - d / 2, atol=1e-6)


@pytest.mark.parametrize(
    "call", [lambda: parity(0), lambda: parity(17), lambda: spirals(samples=2), lambda: spirals(arms=1)]
)
def test_impossible_sizes_are_refused(call) -> None:
    with pytest.raises(SpecError):
        call()


@pytest.mark.parametrize("name", ["digits", "iris"])
def test_without_scikit_learn_the_hint_names_the_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UnsupportedError, match="scikit-learn") as caught:
        PROBLEMS[name]()
    assert caught.value.hint == "pip install 'volumetric-engine[data]'"
