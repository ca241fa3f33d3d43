"""Windows of streams: a batch goes on from the states that the one before left."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, ShapeError
from volumetric.graph.device import TensorStore
from volumetric.run.graph.network import resumed_states
from volumetric.run.graph.training import ForwardPass
from volumetric.run.kept import Buffer, KeptBuffers
from volumetric.run.streams.marks import check_marks
from volumetric.train.data import Batch
from volumetric.train.objective import Ready
from volumetric.train.subject import OTHER_RUN
from volumetric.train.trained import TrainedArrays
from volumetric.train.whole import WholeTime
from volumetric.train.windows import RESETS

Use: TypeAlias = Literal["carried", "seen"]
LEARNS, LOOKS = "carried", "seen"
"""Names of what streams keep while they learn, and while they are judged."""


class BatchStreams:
    """What streams keep between batches, in buffers that are made when a size of batch is first met.

    Parameters
    ----------
    buffers : returns the form of what streams keep for a use

    Attributes
    ----------
    carried : how many streams the next update goes on from; None: they begin
    """

    def __init__(self, store: TensorStore, buffers: Callable[[Use], Mapping[str, Buffer]]) -> None:
        self.carried: int | None = None
        self._store, self._buffers = store, buffers
        self._known: dict[tuple[Use, int], KeptBuffers] = {}

    def of(self, use: Use, batch: int) -> KeptBuffers:
        """Return the buffers of so many streams."""
        buffers = self._known.get((use, batch))
        if buffers is None:
            buffers = self._known[use, batch] = KeptBuffers(self._store, self._buffers(use), batch, use)
            buffers.begin()
        return buffers

    @property
    def values(self) -> dict[str, Array]:
        """What the next update goes on from, copied."""
        return {} if self.carried is None else self.of(LEARNS, self.carried).values()

    def restore(self, values: Mapping[str, Array]) -> None:
        """Go on from `values`. Raises `CheckpointError` where they are of other streams."""
        batch: int | None = None
        if values:
            buffers = self._buffers(LEARNS)
            key = next(iter(values))
            batch = buffers[key].batch_of(values[key].shape) if key in buffers else 0
            shapes = {key: buffer.shape(batch) for key, buffer in buffers.items()}
            if not batch or shapes != {key: value.shape for key, value in values.items()}:
                raise CheckpointError("the checkpoint's streams are not those of this network", hint=OTHER_RUN)
            self.of(LEARNS, batch).put(values)
        self.carried = batch


class CarriedTime(WholeTime):
    """Batches are windows of streams.

    What the layers keep of each sequence stays on the device from batch to batch, and is written with the weights: an
    update that is refused leaves both as they were. Batches that are judged go through streams of their own.

    Raises
    ------
    UnsupportedError
        A layer looks at rows before and keeps nothing of fixed size of them, as attention without a window, or a link
        has a delay.
    """

    def __init__(self, arrays: TrainedArrays) -> None:
        super().__init__(arrays)
        buffers = {key: Buffer(state.shape) for key, state in resumed_states(arrays.plan).items()}
        self._streams = BatchStreams(arrays.store, lambda _: buffers)
        self._marked = RESETS not in arrays.plan.inputs
        """Whether resets come beside the inputs of the network."""

    @property
    def kept(self) -> dict[str, Array]:
        return self._streams.values

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self._streams.restore(arrays)

    def learned(self, batches: Sequence[Batch]) -> None:
        super().learned(batches)
        self._streams.carried = len(batches[-1])

    def ready(self, batch: Batch) -> Ready[ForwardPass]:
        """Check a batch and bring it into the form of graphs, with its resets behind the inputs."""
        return self._windowed(batch, LEARNS)

    def judged(self, batch: Batch) -> Ready[ForwardPass]:
        """Return a batch whose streams go on from those of the batch judged before."""
        return self._windowed(batch, LOOKS)

    def _windowed(self, batch: Batch, use: Use) -> Ready[ForwardPass]:
        inputs = {**batch.given}
        resets = inputs.pop(RESETS, None) if self._marked else None
        ready = self._formed(batch, inputs)
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
        self._streams.of(use, samples)
        at_first = not marks[:, 1:].any()
        marks = np.ascontiguousarray(marks[:, :1]) if at_first else marks
        of = dataclasses.replace(ready.of, carried=f"{use}/{samples}", at_first=at_first)
        count = len(of.inputs)
        return dataclasses.replace(ready, of=of, arrays=[*ready.arrays[:count], marks, *ready.arrays[count:]])
