"""Batches of array data as the indices of their samples, for learners whose devices hold the samples."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from volumetric.base._typing import Array
from volumetric.train.data import ArrayData, Batch

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class PickedBatch:
    """Samples that are processed together, not copied out of the data yet.

    Attributes
    ----------
    data : the data
    samples : the indices of the samples
    """

    data: ArrayData
    samples: Array

    def __len__(self) -> int:
        return len(self.samples)

    def batch(self) -> Batch:
        """Return the batch."""
        return self.data.pick(self.samples)


AnySamples: TypeAlias = "Batch | PickedBatch"


def picked_batches(data: ArrayData, epoch: int, start: int = 0) -> Iterator[PickedBatch]:
    """Yield what `ArrayData.batches` yields, as indices."""
    order = data.order(epoch)
    for i in range(start, data.batches_per_epoch):
        yield PickedBatch(data, order[i * data.batch_size : (i + 1) * data.batch_size])


def as_batch(batch: AnySamples) -> Batch:
    """Return a batch with its samples."""
    return batch.batch() if isinstance(batch, PickedBatch) else batch


def in_groups(batches: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield `size` batches at a time; the last group may be smaller."""
    while group := list(itertools.islice(batches, size)):
        yield group
