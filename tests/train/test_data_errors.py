"""An error of the data or of a batch comes behind the updates before it, also where several are submitted together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.train.problems import waves
from tests.train.test_submissions import ROWS
from volumetric.base._typing import Array
from volumetric.network import Network, initialise
from volumetric.network.weight_store import Params
from volumetric.train import MSE, StepEvent, StreamData, TrainConfig, train
from volumetric.train.data import Batch
from volumetric.train.device_learner import DeviceLearner, learner_on
from volumetric.train.learner import LearnerOptions
from volumetric.train.training_events import Event


class BrokenError(Exception):
    """What a stream raises."""


def until_the_error(
    name: str, steps: int, whole: int, folder: Path, **settings: Any
) -> tuple[list[tuple[str, int, float]], dict[str, Array], int, list[str]]:
    """Train on a stream that breaks behind `whole` batches; return events, weights, updates and checkpoints."""
    data, events, learners = waves(samples=40, batch_size=8), list[tuple[str, int, float]](), list[DeviceLearner]()

    def batches(epoch: int) -> Iterator[Batch]:
        yield from itertools.islice(data.batches(epoch), whole)
        raise BrokenError("the stream broke")

    def opened(network: Network, params: Params, options: LearnerOptions) -> DeviceLearner:
        learners.append(cast("DeviceLearner", learner_on(device(name))(network, params, options)))
        return learners[0]

    def report(event: Event) -> None:
        events.append((type(event).__name__, event.step, getattr(event, "loss", 0.0)))

    config = TrainConfig(epochs=2, steps_per_submission=steps, **settings)
    with pytest.raises(BrokenError, match="the stream broke") as caught:
        train(ROWS, initialise(ROWS, seed=1), StreamData(batches), config, learner=opened, reporters=[report],
              checkpoints=folder)  # fmt: skip
    assert caught.value.__cause__ is caught.value.__context__ is None
    [learner] = learners
    return events, dict(learner.state.masters), learner.state.updates, sorted(path.name for path in folder.glob("*"))


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize(
    ("whole", "settings"),
    [(0, {}), (3, {}), (5, {"checkpoint_every": 2}), (5, {"accumulate": 2})],
    ids=["at once", "in the first submission", "behind a checkpoint", "in a sum of gradients"],
)
def test_an_error_of_the_data_comes_behind_the_updates_before_it(
    name: str, whole: int, settings: dict[str, Any], tmp_path: Path, submitted: list[int]
) -> None:
    one, several = (until_the_error(name, steps, whole, tmp_path / str(steps), **settings) for steps in (1, 4))
    assert one[0] == several[0]
    for key, value in one[1].items():
        np.testing.assert_array_equal(several[1][key], value, err_msg=key)
    assert one[2:] == several[2:]
    assert several[2] == whole // settings.get("accumulate", 1)
    assert submitted == {0: [], 3: [3], 5: [] if "accumulate" in settings else [2, 2]}[whole]


@pytest.mark.parametrize("end", [{"max_steps": 3}, {"stop": 3}], ids=["max_steps", "stop"])
def test_a_run_that_ends_before_an_error_of_the_data_does_not_raise_it(end: dict[str, int]) -> None:
    data, steps = waves(samples=40, batch_size=8), list[int]()

    def batches(epoch: int) -> Iterator[Batch]:
        yield from itertools.islice(data.batches(epoch), 4)
        raise BrokenError

    settings: dict[str, Any] = {"stop": lambda: len(steps) >= 3} if "stop" in end else end
    results = [
        train(ROWS, initialise(ROWS, seed=1), StreamData(batches), device="reference", steps_per_submission=together,
              reporters=[lambda event: steps.append(event.step) if isinstance(event, StepEvent) else None], **settings)
        for together in (1, 64)
    ]  # fmt: skip
    assert [result.steps for result in results] == ([3, 3] if "max_steps" in end else [3, 4])  # of one submission


class SmallTargets(MSE):
    """A loss with a check of its own, which raises no error of the library."""

    def checked(self, shape: tuple[int, ...], target: Array, mask: Array | None) -> Any:
        """Refuse large targets."""
        if np.any(target > 99):
            raise BrokenError("a target is large")
        return super().checked(shape, target, mask)


def test_any_error_of_a_batch_comes_behind_the_updates_before_it(submitted: list[int]) -> None:
    good = list(waves(40, 8).batches(0))
    stream = StreamData(lambda epoch: [*good[:3], Batch(good[3].features, 100 + 0 * good[3].features[:, :1])])
    steps: dict[int, list[float]] = {1: [], 4: []}
    for together, losses in steps.items():
        with pytest.raises(BrokenError, match="large"):
            train(
                ROWS,
                initialise(ROWS, seed=1),
                stream,
                loss=SmallTargets(),
                steps_per_submission=together,
                device=device("gpu"),
                reporters=[lambda event, to=losses: to.append(getattr(event, "loss", 0.0))],
            )
    assert steps[1] == steps[4]
    assert len(steps[4]) == 3
    assert submitted == [3]
