"""Every layer kind learns by gradient descent through the engine's own backward, on the CPU and on a GPU alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import graphs
from tests.examples import EXAMPLES
from tests.learning.tasks import Task
from volumetric.graph import Graph, NumpyGraphs
from volumetric.layers import LAYERS
from volumetric.train import SGD, LearnerOptions
from volumetric.train.device_learner import DeviceLearner

ON_GPU = (
    "agalite",
    "avg_pool1d",
    "axon",
    "batch_norm1d",
    "conv_transpose1d",
    "dropout",
    "fabric",
    "gru",
    "gumbel_softmax",
    "lstm",
    "max_pool1d",
    "mlp",
    "mlstm",
    "multi_head_attention",
    "parallel",
    "rnn",
    "slstm",
    "sparsemax",
)
"""Kinds whose updates have all operations that those of any kind have, on which devices are known to agree."""
TASKS = {kind: entry.lesson() for kind, entry in EXAMPLES.items()}


def curve(task: Task, device: str) -> np.ndarray:
    """The loss before each update."""
    learner = DeviceLearner(task.network, task.student(), LearnerOptions(optimiser=SGD()), graphs(device))
    batch = task.batch()
    losses = [learner.step([batch], rate=task.rate).tally.total for _ in range(task.steps)]
    return np.array([*losses, learner.evaluate(batch).total])


def operations(task: Task) -> set[tuple[str, str]]:
    """The operations of an update, with the function where they are of several."""
    seen: list[Graph] = []

    class Noticing(NumpyGraphs):
        def compile(self, graph: Graph, store: Any) -> Any:
            seen.append(graph)
            return super().compile(graph, store)

    learner = DeviceLearner(task.network, task.student(), LearnerOptions(optimiser=SGD()), Noticing(np.float32))
    learner.step([task.batch()], rate=task.rate)
    return {(node.op, str(node.attrs.get("name", node.attrs.get("kind")))) for graph in seen for node in graph.nodes}


def test_every_kind_has_a_task() -> None:
    assert set(TASKS) == set(LAYERS)


@pytest.mark.thorough
def test_the_gpu_runs_every_operation() -> None:
    found = {kind: operations(task) for kind, task in TASKS.items()}
    assert set().union(*(found[kind] for kind in ON_GPU)) == set().union(*found.values())


@pytest.mark.thorough
@pytest.mark.parametrize("kind", TASKS)
def test_a_layer_learns_and_devices_agree(kind: str) -> None:
    cpu = curve(TASKS[kind], "cpu")
    assert cpu[-1] < 0.1 * cpu[0]
    if kind in ON_GPU:
        gpu = curve(TASKS[kind], "gpu")
        assert gpu[-1] < 0.1 * gpu[0]
        np.testing.assert_allclose(gpu, cpu, rtol=0.01)
