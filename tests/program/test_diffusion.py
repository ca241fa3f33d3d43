"""Noise on diffusive regions in training: how it is drawn, what it is put on, and that all devices learn alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.oracles import oracle
from tests.oracles.program.diffusion import diffused, noise_in
from tests.oracles.training import Training
from tests.train.resuming import whole_and_resumed
from tests.train.test_device_learner import follow, pair
from volumetric.base._typing import Array
from volumetric.builders import chain
from volumetric.graph.numeric.counter_noise import noise_key, stream_of
from volumetric.graph.operations.noise import normal
from volumetric.network import initialise
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.ports import In, Level, Out, Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.recipes import diffusing_regions
from volumetric.program.layer.region import Canvas, Region
from volumetric.train import SGD, AdamW, Batch, TrainConfig, train
from volumetric.train.data import ArrayData
from volumetric.train.device_learner import learner_on

D = 4
PROGRAM = Program(
    Canvas(
        frames=1,
        shape=(3, 2),
        width=D,
        regions={
            "plan": Region(((0, 1), (0, 2)), carrier="diffusive", clock="inner(every(1), 1)"),
            "seldom": Region(((1, 2), (0, 2)), carrier="diffusive", clock="on(now)"),
            "free": Region(((2, 3), (0, 2)), carrier="diffusive"),
        },
    ),
    [Edge("plan", "plan"), Edge("free", "plan"), Edge("seldom", "free", rule="copy")],
    {
        "content": In("plan", 3),
        "cue": In("seldom", 1),
        "level": Level("plan"),
        "other": Level("seldom"),
        "now": Signal(),
        "guess": Out("plan", 2, "flatten"),
        "told": Out("free", 1),
    },
    heads=2,
)
"""Rows: content [3], cue, levels of plan and of seldom, and whether seldom fires."""
LAYER = Layer(program=PROGRAM)
NETWORK = chain([LAYER], (2, 7))
PASS: dict[str, Any] = {"path": "layer", "noise": (3, 4)}


def rows(count: int, seed: int = 7) -> Array:
    """Content and a cue, levels in 0 … 1, and a signal in every other row."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2, 7)).astype(np.float32)
    x[..., 4:6] = rng.uniform(size=(count, 2, 2))
    x[..., 6] = rng.integers(2, size=(count, 2))
    return x


def arrays(seed: int = 3) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {of.name: rng.normal(size=of.shape) for of in LAYER.params()}


@pytest.mark.thorough
def test_noise_is_normal_and_nothing_of_it_goes_together() -> None:
    """Moments and correlations of 2**20 numbers: 5 standard deviations of a mean are 0.005."""
    count = 1 << 20
    places = [stream_of(f"1.0.0.0/{name}/noise") for name in ("plan", "seldom")]
    keys = [noise_key(seed, update, part) for seed, update, part in ((0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0))]
    drawn = [normal((count,), keys[0], places[1])] + [normal((count,), key, places[0]) for key in keys]
    for x in drawn:
        for power, want, far in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
            assert abs((x**power).mean() - want) < 0.005 * far, power
        for bound, share in ((1.0, 0.317311), (2.0, 0.045500), (3.0, 0.0026998)):
            assert abs((np.abs(x) > bound).mean() - share) < 5 * (share / count) ** 0.5
        for step in (1, 2, 16, 32, 512, 1024):
            for one, other in ((x[step:], x[:-step]), (x[step:] ** 2 - 1, x[:-step] ** 2 - 1)):
                assert abs((one * other).mean()) < 0.005 * (one.std() * other.std())
    for i, x in enumerate(drawn):
        for other in drawn[:i]:
            assert abs((x * other).mean()) < 0.005


def test_each_stream_row_and_region_has_noise_of_its_own() -> None:
    facts = facts_of(PROGRAM)
    assert [place.name for place in diffusing_regions(facts)] == [
        "plan",
        "seldom",
    ]  # nobody tells the level of the other one
    drawn = noise_in(facts, 5, 3, Training(**PASS))
    assert {of.shape for of in drawn.values()} == {(5, 3, 2, D)}
    flat = np.concatenate([of.ravel() for of in drawn.values()])
    assert len(np.unique(flat)) == len(flat)
    part = noise_in(facts, 3, 3, Training(**PASS, first=2))  # a batch in parts has that of the whole
    for number, of in drawn.items():
        np.testing.assert_array_equal(part[number], of[2:])


def test_what_fires_gets_noise_of_its_level() -> None:
    facts, rng = facts_of(PROGRAM), np.random.default_rng(0)
    canvas, noise = rng.normal(size=(3, 6, D)), {n: rng.normal(size=(3, 2, D)) for n in (0, 1)}
    fires = np.array([[True, True, True], [True, False, True], [True, True, True]])
    levels = {0: np.array([0.0, 0.36, 1.0]), 1: np.array([0.64, 0.5, -3.0])}
    got = diffused(facts, canvas, noise, levels, fires)
    want = canvas.copy()
    want[0, 0:2] = noise[0][0]
    want[1, 0:2] = 0.6 * canvas[1, 0:2] + 0.8 * noise[0][1]
    want[0, 2:4] = 0.8 * canvas[0, 2:4] + 0.6 * noise[1][0]
    want[2, 2:4] = noise[1][2]
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_training_sees_content_through_noise_and_evaluation_as_it_is() -> None:
    p, x = arrays(), rows(2).astype(np.float64)
    spec = Layer(program=PROGRAM)

    def trained(x: Array, key: tuple[int, int] = (3, 4)) -> Array:
        return oracle(spec).train_forward(p, x, training=Training(path="layer", noise=key))[0]

    x[..., 4:6] = 1.0  # no noise
    np.testing.assert_array_equal(trained(x), oracle(spec).forward(p, x)[0])
    x[..., 4:6] = 0.0  # noise alone: what content was, nobody knows
    other = x.copy()
    other[..., :4] += 1.0
    np.testing.assert_array_equal(trained(x), trained(other))
    assert np.abs(trained(x) - trained(x, (3, 5))).max() > 1e-3
    assert np.abs(oracle(spec).forward(p, x)[0] - oracle(spec).forward(p, other)[0]).max() > 1e-3


@pytest.mark.thorough
def test_gradients_are_differences_with_the_noise_held() -> None:
    p, x, rng = arrays(), rows(2).astype(np.float64), np.random.default_rng(5)
    gy = rng.normal(size=(2, 2, 3))

    def value(p: dict[str, Array], x: Array) -> float:
        return float((oracle(LAYER).train_forward(p, x, training=Training(**PASS, first=1))[0] * gy).sum())

    _, saved = oracle(LAYER).train_forward(p, x, training=Training(**PASS, first=1))
    found = oracle(LAYER).vjp(p, saved, gy)
    for name, of in p.items():
        way = rng.normal(size=of.shape)
        want = (value(p | {name: of + 1e-6 * way}, x) - value(p | {name: of - 1e-6 * way}, x)) / 2e-6
        np.testing.assert_allclose((found.params[name] * way).sum(), want, rtol=1e-5, atol=1e-6, err_msg=name)
    way = rng.normal(size=x.shape)
    way[..., 3] = way[..., 6] = 0.0
    assert found.inputs[0] is not None
    want = (value(p, x + 1e-6 * way) - value(p, x - 1e-6 * way)) / 2e-6
    np.testing.assert_allclose((found.inputs[0] * way).sum(), want, rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_devices_draw_the_same_noise(name: str) -> None:
    rng = np.random.default_rng(7)
    batches = [Batch(rows(3, 3), rng.normal(size=(3, 2, 3)).astype(np.float32))]
    follow(pair(name, NETWORK, optimiser=SGD(), seed=1 << 40), batches, rate=0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_run_that_is_resumed_draws_what_it_would_have(name: str, tmp_path: Path) -> None:
    data = ArrayData(inputs=rows(8), targets=np.zeros((8, 2, 3), np.float32), batch_size=2)
    config = TrainConfig(optimiser=AdamW(lr=0.01), epochs=2, accumulate=2, checkpoint_every=1, seed=9)

    def run(home: Path, *stop: Any, resume: bool = False) -> Any:
        learner = learner_on(device(name))
        reporters: Any = stop
        return train(
            NETWORK,
            initialise(NETWORK),
            data,
            config,
            learner=learner,
            reporters=reporters,
            checkpoints=home,
            resume=resume,
        )

    whole_and_resumed(run, tmp_path, 1)
