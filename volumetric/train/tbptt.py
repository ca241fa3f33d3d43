"""Truncated backpropagation through time: each batch continues from the states of the previous batch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError, ShapeError
from volumetric.graph.graph_device import TensorStore
from volumetric.run.graph.network_graph import resumed_states
from volumetric.run.graph.training_graphs import ForwardPass
from volumetric.run.stream_buffers import StreamBuffers, StreamBufferSpec
from volumetric.run.streams.stream_io import check_marks
from volumetric.train.data import Batch
from volumetric.train.picked_batch import AnySamples
from volumetric.train.prepared_batch import PreparedBatch
from volumetric.train.stream_windows import RESETS
from volumetric.train.trainable import OTHER_RUN
from volumetric.train.trained_arrays import TrainedArrays
from volumetric.train.whole_batches import WholeTime

Use: TypeAlias = Literal["carried", "seen"]
LEARNS, LOOKS = "carried", "seen"
"""Names of the stream states in training and in evaluation."""


class BatchStreams:
    """States of streams between batches, in buffers created at the first batch of each size.

    Parameters
    ----------
    buffers : returns the form of the stream states for a use

    Attributes
    ----------
    carried : number of streams that the next update continues; None: new streams
    """

    def __init__(self, store: TensorStore, buffers: Callable[[Use], Mapping[str, StreamBufferSpec]]) -> None:
        self.carried: int | None = None
        self._store, self._buffers = store, buffers
        self._known: dict[tuple[Use, int], StreamBuffers] = {}

    def of(self, use: Use, batch: int) -> StreamBuffers:
        """Return the buffers for `batch` streams."""
        buffers = self._known.get((use, batch))
        if buffers is None:
            buffers = self._known[use, batch] = StreamBuffers(self._store, self._buffers(use), batch, use)
            buffers.begin()
        return buffers

    @property
    def values(self) -> dict[str, Array]:
        """Copies of the states that the next update continues from."""
        return {} if self.carried is None else self.of(LEARNS, self.carried).values()

    def restore(self, values: Mapping[str, Array]) -> None:
        """Continue from `values`. Raises `CheckpointError` if they belong to other streams."""
        batch: int | None = None
        if values:
            buffers = self._buffers(LEARNS)
            key = next(iter(values))
            batch = buffers[key].batch_of(values[key].shape) if key in buffers else 0
            shapes = {key: buffer.shape(batch) for key, buffer in buffers.items()}
            if not batch or shapes != {key: value.shape for key, value in values.items()}:
                raise CheckpointError("the stream states of the checkpoint do not match this network", hint=OTHER_RUN)
            self.of(LEARNS, batch).write(values)
        self.carried = batch


class CarriedTime(WholeTime):
    """Batches are windows of streams.

    Layer states of each sequence stay on the device between batches and are written together with the weights: a
    rejected update changes neither. Evaluation batches use separate streams.

    Raises
    ------
    UnsupportedError
        A layer reads earlier rows and has no state of fixed size, as attention without a window, or a link has a delay.
    """

    independent = False

    def __init__(self, arrays: TrainedArrays) -> None:
        super().__init__(arrays)
        buffers = {key: StreamBufferSpec(state.shape) for key, state in resumed_states(arrays.plan).items()}
        self._streams = BatchStreams(arrays.store, lambda _: buffers)
        self._marked = RESETS not in arrays.plan.inputs
        """Whether the plan has resets in addition to the inputs of the network."""

    @property
    def carried_arrays(self) -> dict[str, Array]:
        return self._streams.values

    def restore(self, arrays: Mapping[str, Array]) -> None:
        self._streams.restore(arrays)

    def finish_update(self, batches: Sequence[AnySamples]) -> None:
        super().finish_update(batches)
        self._streams.carried = len(batches[-1])

    def ready(self, batch: Batch) -> PreparedBatch[ForwardPass]:
        """Check a batch and convert it to graph form, with its resets after the inputs."""
        return self._window(batch, LEARNS)

    def prepare_judged(self, batch: Batch) -> PreparedBatch[ForwardPass]:
        """Return a batch whose streams continue those of the previous evaluation batch."""
        return self._window(batch, LOOKS)

    def _window(self, batch: Batch, use: Use) -> PreparedBatch[ForwardPass]:
        inputs = {**batch.inputs_by_name}
        resets = inputs.pop(RESETS, None) if self._marked else None
        ready = self._prepare(batch, inputs)
        if ready.of.sequences is None:
            raise ShapeError(
                f"mode 'backprop' with carry learns from sequences, but inputs of shape {list(batch.features.shape)} "
                "are rows",
                hint="add a leading axis to inputs, targets and mask: [samples, T, …]",
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
