"""Samples that stay on the device: whole array data in graph form, from which updates pick rows.

Which arrays a batch has in graph form, and how many terms its losses have, depends on its size alone, unless terms are
masked or ignored. So data are checked and converted once, and an update needs only the indices of its samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import VolumetricError
from volumetric.graph.run_series import PickedRows
from volumetric.train.data import ArrayData, Batch
from volumetric.train.picked_batch import PickedBatch
from volumetric.train.prepared_batch import PreparedBatch

_MOST_BYTES = 128 << 20
"""Bytes of an array of samples at most: what every GPU binds at once."""


class ResidentSamples:
    """The samples of one `ArrayData` at a time.

    Parameters
    ----------
    ready : checks a batch and converts it to graph form
    share : prepares it for an update of its own: returns it with the shares of its losses, and the factor on gradients
    """

    def __init__(
        self,
        ready: Callable[[Batch], PreparedBatch[Any]],
        share: Callable[[PreparedBatch[Any]], tuple[PreparedBatch[Any], float]],
    ) -> None:
        self._ready, self._share = ready, share
        self._data: ArrayData | None = None
        self._whole: PreparedBatch[Any] | None = None
        self._sizes: dict[int, tuple[PreparedBatch[Any], float] | None] = {}

    def prepare(self, batch: PickedBatch) -> tuple[PreparedBatch[Any], float] | None:
        """Return a batch whose samples are `PickedRows`, with its factor; None if the host must gather and check it."""
        if batch.data is not self._data:
            self._data, self._whole, self._sizes = batch.data, self._prepare_whole(batch.data), {}
        whole, samples = self._whole, np.ascontiguousarray(batch.samples, np.int32)
        if whole is None:
            return None
        if len(batch) not in self._sizes:
            self._sizes[len(batch)] = self._form(whole, batch.batch(), samples, len(batch.data))
        form = self._sizes[len(batch)]
        if form is None:
            return None
        one, scale = form
        picked: list[Any] = [PickedRows(array, samples) for array in whole.arrays]
        return PreparedBatch(one.of, [*picked, *one.arrays], one.posed), scale

    def _prepare_whole(self, data: ArrayData) -> PreparedBatch[Any] | None:
        if data.mask is not None or any(4 * array.size > _MOST_BYTES for array in data.arrays.values()):
            return None
        try:
            whole = self._ready(Batch(data.inputs, data.targets, ports=data.ports))
        except VolumetricError:
            return None  # the batch with the wrong sample has the better message
        whole.arrays[:] = [_own(array) for array in whole.arrays]
        rows = len(data)
        # one sample may have several terms; ids that the loss ignores are none
        counted = all(
            whole.posed.counts[of.name] == of.terms[0] for of in whole.posed.objectives if of.by_rows
        ) and all(of.weights is None for of in whole.posed.objectives)
        return whole if counted and all(len(array) == rows for array in whole.arrays) else None

    def _form(
        self, whole: PreparedBatch[Any], batch: Batch, samples: Array, rows: int
    ) -> tuple[PreparedBatch[Any], float] | None:
        """Return the first batch of a size, if picking rows gives its arrays and all batches have as many terms."""
        one = self._ready(batch)
        alike = len(one.arrays) == len(whole.arrays) and all(
            array.dtype == every.dtype and np.array_equal(array.view(np.int32), every[samples].view(np.int32))
            for array, every in zip(one.arrays, whole.arrays, strict=True)
        )
        shares = all(whole.posed.counts[name] * len(batch) == n * rows for name, n in one.posed.counts.items())
        return self._share(dataclasses.replace(one, arrays=[])) if alike and shares else None


def _own(array: Array) -> Array:
    """Return a contiguous copy of an array, which a device may hold: the caller may change the original."""
    return np.array(array, order="C")
