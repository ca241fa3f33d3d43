"""A few samples of a run with their predictions, and the confusion of its classes, epoch by epoch."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.softmax import softmax
from volumetric.train.arrays import by_input_name
from volumetric.train.data import ArrayData, Batch
from volumetric.train.epoch_end import EpochEnd
from volumetric.train.losses import BCE, CrossEntropy, Loss

MOST_SAMPLES: Final = 24
"""Samples that are shown at most."""
MOST_JUDGED: Final = 1000
"""Samples that a confusion matrix counts at most, evenly spread over the data."""
MOST_CLASSES: Final = 64
"""Classes of a confusion matrix at most."""
MOST_NUMBERS: Final = 1 << 16
"""Numbers of a sample at most; of longer ones the beginning is stored."""
MOST_OUTPUTS: Final = 64
"""Numbers of an output at most that are stored for a sample."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbedSamples:
    """The samples, as they are at the beginning of a run.

    Attributes
    ----------
    inputs : ``[samples, …]``, of the network's first input
    targets : class ids ``[samples]`` or ``[samples, T]``, or values ``[samples, …]``
    classed : whether targets are classes
    classes : names of the classes, if the data have them
    output : name of the output
    held_out : whether the samples are validation data
    """

    event: ClassVar[str] = "samples"

    inputs: Array
    targets: Array
    classed: bool
    classes: tuple[str, ...]
    output: str
    held_out: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProbedPredictions:
    """Predictions at the end of an epoch.

    Attributes
    ----------
    step, epoch : of the weights
    predictions : class ids in the shape of the targets, or values
    outputs : values of each class ``[samples, classes]`` as probabilities, else None
    confusion : number of samples by class and predicted class, or None
    judged : samples in `confusion`
    """

    event: ClassVar[str] = "predictions"

    step: int
    epoch: int
    predictions: Array
    outputs: Array | None
    confusion: Array | None
    judged: int


class SampleProbe:
    """Asks a run for its predictions of the same samples again and again.

    Parameters
    ----------
    count : number of samples, 1 … 24

    Attributes
    ----------
    samples : the samples, after the first call of `read`

    Raises
    ------
    SpecError : `count` is out of range
    """

    def __init__(self, count: int = MOST_SAMPLES) -> None:
        if not 1 <= count <= MOST_SAMPLES:
            raise SpecError(f"samples must be in 1 … {MOST_SAMPLES}, got {count}", hint="0 turns them off")
        self._count = count
        self._batches: list[Batch] = []
        self.samples: ProbedSamples | None = None

    def read(self, state: EpochEnd) -> ProbedPredictions | None:
        """Return predictions for the samples with the weights of now; None if the data have no samples."""
        self._batches = self._batches or _chosen_batches(state)
        if not self._batches:
            return None
        losses = state.config.losses
        name = next(iter(losses.targets_of(self._batches[0])))
        loss = losses.of[name]
        shown: list[tuple[Array, Array, Array]] = []
        confusion: Array | None = None
        left, judged, classed = self._count, 0, False
        for batch in self._batches:
            y, target = np.asarray(state.outputs(batch)[name]), np.asarray(losses.targets_of(batch)[name][0])
            if not y.size:
                continue
            classed = _are_classes(loss, y, target)
            ids = _class_ids(loss, y, target) if classed else None
            if ids is not None and ids[0].shape != ids[1].shape:
                ids, classed = None, False
            if left:
                x = next(iter(by_input_name(batch.inputs).values()))
                shown.append((x[:left], y[:left], target[:left] if ids is None else ids[0][:left]))
                left -= len(shown[-1][0])
            if ids is not None and _count_of(y) <= MOST_CLASSES:
                right = (ids[0] >= 0) & (ids[0] < _count_of(y))
                pairs = ids[0][right] * _count_of(y) + ids[1][right]
                counts = np.bincount(pairs.ravel().astype(np.intp), minlength=_count_of(y) ** 2)
                confusion = counts if confusion is None else confusion + counts
                judged += int(right.sum())
        if not shown:
            return None
        x, y, target = (np.concatenate(parts) for parts in zip(*shown, strict=True))
        if self.samples is None:
            flat = x.reshape(len(x), -1)
            data = state.samples
            self.samples = ProbedSamples(
                inputs=x if flat.shape[1] <= MOST_NUMBERS else flat[:, :MOST_NUMBERS],
                targets=target if classed else target.reshape(len(target), -1)[:, :MOST_OUTPUTS],
                classed=classed,
                classes=data.classes if isinstance(data, ArrayData) else (),
                output=name,
                held_out=state.held_out,
            )
        side = None if confusion is None else int(np.sqrt(confusion.size))
        return ProbedPredictions(
            step=state.step,
            epoch=state.epoch,
            predictions=_predicted(loss, y) if classed else y.reshape(len(y), -1)[:, :MOST_OUTPUTS],
            outputs=_probabilities(loss, y) if classed and y.ndim == 2 and y.shape[1] <= MOST_OUTPUTS else None,
            confusion=None if confusion is None or side is None else confusion.reshape(side, side),
            judged=judged,
        )


def _chosen_batches(state: EpochEnd) -> list[Batch]:
    """Return batches of samples of the data: evenly spread ones, or the first ones of a stream."""
    data = state.samples
    if isinstance(data, ArrayData):
        count = min(len(data), MOST_JUDGED)
        chosen = np.arange(count) * len(data) // count
        first = chosen[:: max(1, count // MOST_SAMPLES)][:MOST_SAMPLES]  # those that are shown, evenly spread, too
        order = np.concatenate([first, np.setdiff1d(chosen, first)])
        return [data.pick(order[i : i + data.batch_size]) for i in range(0, count, data.batch_size)]
    batches: list[Batch] = []
    for batch in islice(data.batches(0), MOST_JUDGED):
        batches.append(batch.copy())
        if sum(map(len, batches)) >= MOST_SAMPLES:
            break
    return batches


def _are_classes(loss: Loss, y: Array, target: Array) -> bool:
    whole = target.dtype.kind in "iub" and target.shape == y.shape[:-1]
    single = isinstance(loss, BCE) and y.shape[-1:] == (1,) and target.size == y.size
    return isinstance(loss, CrossEntropy) or whole or single


def _count_of(y: Array) -> int:
    return max(2, y.shape[-1])


def _class_ids(loss: Loss, y: Array, target: Array) -> tuple[Array, Array]:
    """Return the classes of targets and of outputs."""
    if y.shape[-1] == 1:
        return (target.reshape(y.shape[:-1]) > 0.5).astype(np.int64), _predicted(loss, y)
    wanted = target.argmax(-1) if target.ndim == y.ndim and target.shape == y.shape else target
    if wanted.ndim == y.ndim and wanted.shape[-1] == 1:
        wanted = wanted[..., 0]
    return wanted.astype(np.int64), _predicted(loss, y)


def _predicted(loss: Loss, y: Array) -> Array:
    if y.shape[-1] == 1:
        return (y[..., 0] > (0.0 if isinstance(loss, BCE) and loss.logits else 0.5)).astype(np.int64)
    return y.argmax(-1)


def _probabilities(loss: Loss, y: Array) -> Array:
    if y.shape[-1] == 1:
        with np.errstate(over="ignore"):
            right = 1 / (1 + np.exp(-y.astype(np.float64))) if isinstance(loss, BCE) and loss.logits else y
        return np.concatenate([1 - right, right], -1).astype(np.float32)
    return softmax(y) if isinstance(loss, CrossEntropy) else y
