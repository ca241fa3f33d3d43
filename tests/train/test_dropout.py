"""Dropout in training: the same elements on every device, other ones at every update, none at inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.arrays import array
from tests.devices import DEVICES, device, graphs
from tests.train.problems import waves
from tests.train.resuming import whole_and_resumed
from tests.train.test_device_learner import assert_equal, follow, pair, sentences
from volumetric.base.errors import SpecError
from volumetric.builders import chain
from volumetric.graph.numeric.counter_noise import noise_key, stream_of
from volumetric.graph.operations.noise import dropout_mask
from volumetric.layers import Dense, Dropout, Embedding, MultiHeadAttention, Residual, Sequential
from volumetric.network import initialise
from volumetric.run import RunOptions, lower
from volumetric.run.graph.network_graph import NATIVE
from volumetric.run.graph.partition import row_wise
from volumetric.train import SGD, AdamW, Batch, CrossEntropy, LearnerOptions, TrainConfig, train
from volumetric.train.device_learner import DeviceLearner, learner_on
from volumetric.train.settings import settings_from

ROWS = chain(
    [Dense(in_features=4, out_features=32, activation="tanh"), Dropout(p=0.4), Dense(in_features=32, out_features=1)],
    (4,),
)


def batch(start: int = 0, count: int = 16) -> Batch:
    data = waves()
    return Batch(data.features[start : start + count], array(data.targets)[start : start + count])


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_devices_drop_the_same_elements(name: str) -> None:
    follow(pair(name, ROWS, optimiser=AdamW(), seed=5), [batch()])
    follow(pair(name, ROWS, optimiser=SGD()), [batch(), batch(16, 7), batch(23)])


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_sequences_that_go_one_by_one_drop_what_they_drop_together(name: str) -> None:
    attention = Sequential(
        layers=(MultiHeadAttention(embed_dim=8, num_heads=2), Dropout(p=0.3), Residual(source="input"))
    )
    layers = [
        Embedding(num_embeddings=11, embedding_dim=8),
        Dropout(p=0.1),
        attention,
        Dense(in_features=8, out_features=11),
    ]
    learners = pair(name, chain(layers, (), "int32"), loss=CrossEntropy(), optimiser=SGD(), seed=1 << 40)
    follow(learners, [sentences(), sentences(2, 5)], rate=1e-3)


@pytest.mark.parametrize("name", DEVICES)
def test_each_update_and_each_seed_drops_others_and_validation_none(name: str) -> None:
    def learner(seed: int) -> DeviceLearner:
        return DeviceLearner(ROWS, initialise(ROWS), LearnerOptions(optimiser=SGD(), seed=seed), graphs(name))

    one, other = learner(0), learner(1)
    losses = [of.step([batch()], rate=0.0).tally.total for of in (one, one, other)]
    assert len(set(losses)) == 3
    assert one.evaluate(batch()).total == one.evaluate(batch()).total == other.evaluate(batch()).total
    both = [learner(0).step([batch(), batch()], rate=0.0).tally.total, 2 * losses[0]]
    assert both[0] != pytest.approx(both[1])  # the second batch of an update drops others than the first


@pytest.mark.parametrize("name", DEVICES)
def test_inference_is_that_of_the_network_without_it(name: str) -> None:
    plain = chain([ROWS.layers[coord] for coord in ROWS.layers if ROWS.layers[coord].kind != "dropout"], (4,))
    assert row_wise(lower(ROWS), NATIVE)
    params = initialise(ROWS, seed=3)
    moved = {key.replace("2.0.0.0", "1.0.0.0"): store for key, store in params.items()}
    found = []
    for network, weights in ((ROWS, params), (plain, moved)):
        executable = device(name).compile(lower(network), type(params)(weights), RunOptions())
        found.append(executable.forward(executable.new_state(), batch().inputs, last_only=False))
    np.testing.assert_array_equal(*found)
    alone = chain([Dropout(p=1.0)], (3,))
    executable = device(name).compile(lower(alone), initialise(alone), RunOptions())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(executable.forward(executable.new_state(), x, last_only=False), x)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_run_that_is_resumed_drops_what_it_would_have(name: str, tmp_path: Path) -> None:
    config = TrainConfig(optimiser=AdamW(lr=0.01), epochs=2, accumulate=3, checkpoint_every=1, seed=9)

    def run(home: Path, *stop: Any, resume: bool = False) -> Any:
        return train(
            ROWS,
            initialise(ROWS),
            waves(),
            config,
            learner=learner_on(device(name)),
            reporters=stop,
            checkpoints=home,
            resume=resume,
        )

    whole_and_resumed(run, tmp_path, 1)


def test_a_learner_in_the_state_of_another_goes_on_as_it_does() -> None:
    options = LearnerOptions(optimiser=SGD(), seed=2)
    one, two = (DeviceLearner(ROWS, initialise(ROWS), options, graphs("reference")) for _ in range(2))
    one.step([batch()], rate=0.1)
    two.restore(one.state)
    for learner in (one, two):
        learner.step([batch()], rate=0.1)
    assert_equal(one.state, two.state)


def test_the_seed_of_a_run_is_that_of_its_noise() -> None:
    assert settings_from({"seed": 7}).train.seed == 7
    assert settings_from({"seed": 7, "train": {"seed": 8}}).train.seed == 8


def test_p_is_a_chance() -> None:
    for p in (-0.1, 1.5, float("nan"), True):
        with pytest.raises(SpecError, match="p must be in 0 … 1"):
            Dropout(p=p)


def test_what_is_dropped_looks_random() -> None:
    """Shares and correlations of 2**20 choices: 5 standard deviations are 0.005, and half of that for the shares."""
    count = 1 << 20
    places = [stream_of(f"{z}.0.0.0") for z in (0, 1)]
    keys = [noise_key(seed, update, part) for seed, update, part in ((0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0))]
    drawn = [dropout_mask((count,), 0.5, keys[0], places[1])] + [
        dropout_mask((count,), 0.5, key, places[0]) for key in keys
    ]
    for choice in drawn:
        assert abs(choice.mean() - 0.5) < 0.0025
        for step in (1, 2, 32, 512, 1024):
            assert abs((choice[step:] == choice[:-step]).mean() - 0.5) < 0.0025
    for i, choice in enumerate(drawn):
        for other in drawn[:i]:
            assert abs((choice == other).mean() - 0.5) < 0.0025
    for p in (0.0, 0.1, 0.9, 1.0):
        assert abs(dropout_mask((count,), p, keys[0], 3).mean() - (1 - p)) < 0.0025
