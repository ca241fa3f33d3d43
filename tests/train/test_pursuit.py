"""Pursuit: the world is what its text says, exact answers are the best, and its programs learn and are counted."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.network import Params, initialise
from volumetric.observe import fired, work_of
from volumetric.program import Program
from volumetric.program.describe import problems
from volumetric.train import Adam, CrossEntropy, StepEvent, TrainConfig, train
from volumetric.train.pursuit import BASELINES, always_on, at_home, exact, pursuit, triggered
from volumetric.train.pursuit.world import BELLS, CUE, HIDDEN, IMAGE, NOISE, PLAN, RINGS, SIDE, STAY

PROBLEM = pursuit(3, 48, 64)
ROWS, TARGETS = PROBLEM.inputs, PROBLEM.targets


def test_a_ball_goes_cell_by_cell_hides_and_is_at_home_when_the_bell_has_rung() -> None:
    plans, bells, home = ROWS[..., CUE] > 0, ROWS[..., BELLS] > 0, at_home(ROWS)
    np.testing.assert_array_equal(ROWS[..., RINGS], ROWS[..., BELLS])
    np.testing.assert_array_equal(ROWS[..., PLAN].sum(2), plans)
    assert plans[:, 0].all()
    assert not (plans & bells).any()
    # The home is that of the last plan.
    last = np.maximum.accumulate(np.where(plans, np.arange(plans.shape[1]), 0), 1)
    homes = np.take_along_axis(ROWS[..., PLAN].argmax(2), last, 1)
    assert not np.isin(homes % SIDE, HIDDEN).any()
    assert bells.any()
    assert home.sum(1).max() > STAY
    np.testing.assert_array_equal(TARGETS[home], homes[home])
    # On its way it goes a cell at most in each direction, from frame to frame.
    at = np.stack(np.divmod(TARGETS, SIDE))
    assert np.abs(np.diff(at, axis=2)).max(0)[~home[:, 1:]].max() == 1
    # It is seen where it is, and only there.
    there, image = TARGETS[:, :-1], ROWS[:, 1:, IMAGE]
    seen = ~np.isin(there % SIDE, HIDDEN) & ~home[:, :-1]
    np.testing.assert_array_equal(image.max(2) > 0.5, seen)
    np.testing.assert_array_equal(image.argmax(2)[seen], there[seen])
    assert abs(image[~seen].std() - NOISE) < 0.01 * NOISE


def test_samples_depend_on_seed_split_and_epoch() -> None:
    np.testing.assert_array_equal(pursuit(3, 48, 64).inputs, ROWS)
    for other in (pursuit(4, 48, 64), pursuit(3, 48, 64, split="test"), pursuit(3, 48, 64, epoch=1)):
        assert (other.targets != TARGETS).any()
    for bad in ({"samples": 0}, {"length": 0}, {"seed": -1}, {"split": "other"}):
        with pytest.raises(SpecError, match="pursuit"):
            pursuit(**bad)  # pyright: ignore[reportArgumentType]


def test_nothing_beats_exact_answers() -> None:
    shares = {name: float((f(ROWS) == TARGETS).mean()) for name, f in {**BASELINES, "exact": exact}.items()}
    assert shares["last seen"] < 0.1 < 0.7 < shares["straight on"] < 0.9 < shares["exact"]


@pytest.mark.thorough
def test_programs_learn_and_what_fires_is_counted() -> None:
    every, some = always_on(16), triggered(0.2, 16)
    assert not problems(every)
    assert not problems(some)
    network, losses = every.network(), list[float]()

    def note(event: object) -> None:
        if isinstance(event, StepEvent):
            losses.append(event.loss)

    data = (ROWS[:8, :2], TARGETS[:8, :2])
    config = TrainConfig(loss=CrossEntropy(), optimiser=Adam(lr=0.01), epochs=12)
    params = train(network, initialise(network, 0), data, config, reporters=[note], device="cpu").params
    assert losses[-1] < losses[0]
    most, less = (_counts(program, params) for program in (every, some))
    assert (most == work_of(every).most).all()
    assert (less[:, 0] > less[:, 2]).all()  # the plan is stored, and nothing surprises
    assert (less < most).all()


def _counts(program: Program, params: Params) -> Array:
    seen = fired(program.network(), ROWS[:2, :3], params=params, device="reference")
    return work_of(program).cost_of(seen)
