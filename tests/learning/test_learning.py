"""Every layer kind learns on the CPU and on a GPU alike, by gradient descent through the engine's own backward."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import graphs
from tests.learning.tasks import TASKS, Task
from volumetric.layers import LAYERS
from volumetric.train import SGD, LearnerOptions
from volumetric.train.device import DeviceLearner


def curve(task: Task, device: str) -> np.ndarray:
    """The loss before each update."""
    learner = DeviceLearner(task.network, task.student(), LearnerOptions(optimiser=SGD()), graphs(device))
    batch = task.batch()
    losses = [learner.step([batch], rate=task.rate).tally.total for _ in range(task.steps)]
    return np.array([*losses, learner.evaluate(batch).total])


def test_every_kind_has_a_task() -> None:
    assert set(TASKS) == set(LAYERS)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", TASKS)
def test_a_layer_learns_and_devices_agree(kind: str) -> None:
    cpu, gpu = curve(TASKS[kind], "cpu"), curve(TASKS[kind], "gpu")
    assert cpu[-1] < 0.1 * cpu[0]
    assert gpu[-1] < 0.1 * gpu[0]
    np.testing.assert_allclose(gpu, cpu, rtol=0.01)
