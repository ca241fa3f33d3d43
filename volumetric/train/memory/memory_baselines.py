"""Baselines without memory: the most frequent class, token counts, the last 16 tokens; for values, one recurrence."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.builders import sequential
from volumetric.devices.named_devices import AnyDevice
from volumetric.network import initialise
from volumetric.train.data import ArrayData
from volumetric.train.evaluation import evaluate
from volumetric.train.losses import CrossEntropy
from volumetric.train.memory.memory_task import MemoryTask
from volumetric.train.memory.sines import ORDER
from volumetric.train.optim import Adam
from volumetric.train.problems import Problem
from volumetric.train.schedules import Cosine
from volumetric.train.trainer import train
from volumetric.train.training_config import TrainConfig

ROWS: Final = 16
"""Number of tokens that ``last16`` reads."""
_BATCH: Final = 256
Baseline: TypeAlias = Callable[[Problem, Problem, AnyDevice], float]
"""From a training problem and a test problem to the `score`."""


def score(problem: Problem, answers: Array) -> float:
    """Return the accuracy over queries; for values the squared error in units of their variance.

    Parameters
    ----------
    answers : class ids ``[samples, T]``, or values ``[samples, T, 1]``
    """
    answered = _answer_mask(problem)
    if problem.classes:
        return float((answers[answered] == problem.targets[answered]).mean())
    targets = problem.targets[answered].astype(np.float64)
    return float(((answers[answered] - targets) ** 2).mean() / targets.var())


def baseline(name: str, known: Problem, judged: Problem, *, device: AnyDevice = "cpu") -> float:
    """Train a baseline on one problem and evaluate it on another, by `score`.

    ``prior``: the most frequent class, or the mean. ``bag``: logistic regression on the token counts so far.
    ``last16``: a network with a hidden layer of 64 on the last 16 tokens. ``linear``: for values, the best-fitting
    linear recurrence over the `ORDER` preceding values.

    Raises
    ------
    SpecError : the problem has no such baseline
    """
    baselines = baselines_of(known)
    if name not in baselines:
        raise SpecError(f"this problem has no baseline {name!r}", hint=f"one of {', '.join(baselines)}")
    return baselines[name](known, judged, device)


def baselines_of(problem: Problem) -> dict[str, Baseline]:
    """Return the baselines of a problem, by name."""
    return dict(_OF_CLASSES if problem.classes else _OF_VALUES)


def _answer_mask(problem: Problem) -> Array:
    return np.ones(problem.targets.shape[:2], bool) if problem.mask is None else problem.mask > 0


def _prior(known: Problem, judged: Problem, device: AnyDevice) -> float:
    known_answers = known.targets[_answer_mask(known)]
    if not known.classes:
        return score(judged, np.full(judged.targets.shape, known_answers.mean(), np.float64))
    return score(judged, np.full(judged.targets.shape, np.bincount(known_answers).argmax()))


def _bag(known: Problem, judged: Problem, device: AnyDevice) -> float:
    x, y = (_counts(problem) for problem in (known, judged))
    mean, spread = x.mean(0), x.std(0) + 1e-6
    return _train_and_judge(((x - mean) / spread, known), ((y - mean) / spread, judged), (), 0.05, device)


def _counts(problem: Problem) -> Array:
    """Return the token counts so far, at the query rows, ``[rows, vocabulary]``."""
    of = [np.cumsum(problem.inputs == token, 1)[_answer_mask(problem)] for token in range(problem.vocabulary)]
    return np.stack(of, 1).astype(np.float32)


def _last(known: Problem, judged: Problem, device: AnyDevice) -> float:
    x, y = (_windows(problem) for problem in (known, judged))
    return _train_and_judge((x, known), (y, judged), (64,), 1e-2, device)


def _windows(problem: Problem) -> Array:
    """Return the last tokens, one-hot, at the query rows, ``[rows, 16 · vocabulary]``; 0 before the first."""
    ids = np.pad(problem.inputs, ((0, 0), (ROWS - 1, 0)), constant_values=-1)
    windows = np.lib.stride_tricks.sliding_window_view(ids, ROWS, axis=1)[_answer_mask(problem)]
    return (windows[..., None] == np.arange(problem.vocabulary)).reshape(len(windows), -1).astype(np.float32)


def _train_and_judge(
    known: tuple[Array, Problem], judged: tuple[Array, Problem], hidden: tuple[int, ...], rate: float, device: AnyDevice
) -> float:
    """Train a network on rows, and return its accuracy on others."""
    (x, y), (other, other_targets) = (
        (rows, problem.targets[_answer_mask(problem)]) for rows, problem in (known, judged)
    )
    network = sequential(x.shape[1], known[1].outputs, hidden=hidden)
    data = ArrayData(inputs=x, targets=y, batch_size=min(_BATCH, len(x)), drop_last=True)
    epochs = max(2, 300 // data.batches_per_epoch)
    config = TrainConfig(
        loss=CrossEntropy(),
        optimiser=Adam(lr=rate),
        schedule=Cosine(steps=epochs * data.batches_per_epoch),
        epochs=epochs,
    )
    result = train(network, initialise(network), data, config, device=device)
    evaluation = evaluate(
        network, result.params, ArrayData(inputs=other, targets=other_targets, batch_size=4096), config, device=device
    )
    return evaluation.accuracy or 0.0


def _linear(known: Problem, judged: Problem, device: AnyDevice) -> float:
    past, answered = _past(known), _answer_mask(known)
    weights = np.linalg.lstsq(past[answered], known.targets[answered].astype(np.float64), rcond=None)[0]
    return score(judged, _past(judged) @ weights)


def _past(problem: Problem) -> Array:
    """Return the preceding values, ``[samples, T, ORDER]``; 0 before the first."""
    x = np.pad(problem.inputs[..., 0].astype(np.float64), ((0, 0), (ORDER - 1, 0)))
    return np.lib.stride_tricks.sliding_window_view(x, ORDER, axis=1)


def names_of(task: MemoryTask) -> tuple[str, ...]:
    """Return the names of the baselines of a task."""
    return tuple(_OF_VALUES if task.regression else _OF_CLASSES)


_OF_CLASSES: Final = MappingProxyType[str, Baseline]({"prior": _prior, "bag": _bag, "last16": _last})
_OF_VALUES: Final = MappingProxyType[str, Baseline]({"prior": _prior, "linear": _linear})
