"""Training over windows of streams: a batch goes on from the states that the one before left."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from volumetric._typing import Array
from volumetric.errors import CheckpointError, ShapeError
from volumetric.graph import GraphDevice
from volumetric.network import Network
from volumetric.runtime.graph.network import resumed_states
from volumetric.runtime.graph.training import carried_key
from volumetric.runtime.streams.marks import check_marks
from volumetric.train.by_output import Tally
from volumetric.train.data import Batch
from volumetric.train.device import DeviceLearner
from volumetric.train.learner import LearnerOptions, LearnerState, StepReport
from volumetric.train.ready import Ready
from volumetric.train.subject import OTHER_RUN
from volumetric.train.windows import RESETS
from volumetric.weights import Params

LEARNS, LOOKS = "carried", "seen"
"""Names of what streams keep while they learn, and while they are judged."""


class CarryLearner(DeviceLearner):
    """Trains a network on windows of streams, on a `GraphDevice`.

    What the layers keep of each sequence stays on the device from batch to batch, and is written with the weights: an
    update that is refused leaves both as they were. Batches that are judged go through streams of their own.

    Raises
    ------
    UnsupportedError
        A layer looks at rows before and keeps nothing of fixed size of them, as attention without a window, or a link
        has a delay.
    """

    def __init__(self, network: Network, params: Params, options: LearnerOptions, device: GraphDevice) -> None:
        super().__init__(network, params, options, device)
        self._kept_states = resumed_states(self._plan)
        self._streams = LEARNS
        self._known: set[str] = set()
        self._carried: int | None = None

    @property
    def state(self) -> LearnerState:
        """What the next update depends on, copied from the device."""
        whole = super().state
        if self._carried is None:
            return whole
        name = _name(LEARNS, self._carried)
        carried = {key: self._store.get(carried_key(name, key)) for key in self._kept_states}
        return dataclasses.replace(whole, carried=carried)

    def restore(self, state: LearnerState) -> None:
        """Continue from `state`. Raises `CheckpointError` where its arrays are not those of this network."""
        batches = {len(value) for value in state.carried.values()}
        shapes = {key: value.shape[1:] for key, value in state.carried.items()}
        if state.carried and (
            len(batches) != 1 or shapes != {key: kept.shape for key, kept in self._kept_states.items()}
        ):
            raise CheckpointError(
                "the checkpoint's streams are not those of this network",
                hint=OTHER_RUN,
            )
        super().restore(state)
        self._carried = next(iter(batches)) if batches else None
        if self._carried is not None:
            self._begin(LEARNS, self._carried)
            for key, value in state.carried.items():
                self._store.put(carried_key(_name(LEARNS, self._carried), key), value)

    def step(self, batches: Sequence[Batch], *, rate: float) -> StepReport:
        """Make one update from the gradients of all `batches`, one behind the other, together."""
        report = super().step(batches, rate=rate)
        if report.fault is None and self._kept_states:
            self._carried = len(batches[-1])
        return report

    def evaluate(self, batch: Batch) -> Tally:
        """Return the loss of a batch, whose streams go on from those of the batch judged before."""
        with self._as(LOOKS):
            return super().evaluate(batch)

    def measure(self, batch: Batch) -> tuple[Tally, dict[str, Array]]:
        """Return the loss of a batch as `evaluate` does, and the outputs that it has targets of."""
        with self._as(LOOKS):
            return super().measure(batch)

    @contextmanager
    def _as(self, streams: str) -> Iterator[None]:
        before, self._streams = self._streams, streams
        try:
            yield
        finally:
            self._streams = before

    def _inputs(self, batch: Batch) -> Mapping[str, Array]:
        """Return what a batch has for the inputs of the network, which resets are not."""
        if RESETS in self._plan.inputs:
            return batch.given
        return {name: x for name, x in batch.given.items() if name != RESETS}

    def _ready(self, batch: Batch) -> Ready:
        """Check a batch and bring it into the form of graphs, with its resets behind the inputs."""
        resets = None if RESETS in self._plan.inputs else batch.given.get(RESETS)
        ready = super()._ready(batch)
        if ready.of.sequences is None:
            raise ShapeError(
                f"mode 'backprop' with carry learns from sequences, but inputs of shape {list(batch.features.shape)} "
                "are rows",
                hint="give inputs, targets and mask one more axis in front: [samples, T, …]",
            )
        samples, rows = ready.of.inputs[0][1][:2]
        if resets is None:
            marks = np.zeros((samples, rows), np.float32)
            marks[:, :1] = 1
        else:
            marks = np.ascontiguousarray(check_marks(resets, samples, rows), np.float32)
        self._begin(self._streams, samples)
        at_first = not marks[:, 1:].any()
        marks = np.ascontiguousarray(marks[:, :1]) if at_first else marks
        of = dataclasses.replace(ready.of, carried=_name(self._streams, samples), at_first=at_first)
        inputs = len(of.inputs)
        return dataclasses.replace(ready, of=of, arrays=[*ready.arrays[:inputs], marks, *ready.arrays[inputs:]])

    def _begin(self, streams: str, samples: int) -> None:
        """Create the buffers of so many streams when they are first needed."""
        name = _name(streams, samples)
        if name in self._known:
            return
        self._known.add(name)
        for key, state in self._kept_states.items():
            self._store.put(carried_key(name, key), np.zeros((samples, *state.shape), np.float32))


def _name(streams: str, samples: int) -> str:
    return f"{streams}/{samples}"
