"""Windows of long texts: streams side by side, of which each batch has the next rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.network import INPUT
from volumetric.train.data import ArrayData, Batch, checksum

RESETS = "resets"
"""Name by which a batch has resets beside its inputs; unless that is the name of an input."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamWindows:
    """Batches of token ids for training with ``mode=Backprop(carry=True)``: what comes next is to be told.

    The ids are cut into `batch` streams of equal length, side by side; batch number n has rows n · length … of each,
    and as targets the ids that follow. A stream begins anew with its first row, and with every document.

    Attributes
    ----------
    ids : integers ``[N]``
    length : rows of a window
    batch : streams
    separator : id with which a document ends; None: all is one. What a document begins with is not asked of the one
        before: the mask leaves it out

    Raises
    ------
    ShapeError : there are not `length` + 1 ids for each stream
    SpecError : a number is below 1
    """

    ids: Array
    length: int = 128
    batch: int = 16
    separator: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("length", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"windows: {name} must be a whole number above 0, got {value!r}")
        ids = np.asarray(self.ids)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise ShapeError(f"windows are of integers [N], got {ids.dtype} {list(ids.shape)}")
        if self.windows < 1:
            least = self.batch * self.length + 1
            raise ShapeError(
                f"{self.batch} streams with windows of {self.length} need at least {least} ids, got {len(ids)}"
            )

    @property
    def windows(self) -> int:
        """Batches of an epoch; what fills no window at the end of a stream is left out."""
        return (len(self.ids) - 1) // self.batch // self.length

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the windows of an epoch from number `start` on; every epoch is the same."""
        ids = np.asarray(self.ids)
        begins = np.arange(self.batch)[:, None] * ((len(ids) - 1) // self.batch)
        for number in range(start, self.windows):
            at = begins + number * self.length + np.arange(self.length)
            resets = np.zeros(at.shape, np.float32)
            resets[:, 0] = number == 0
            mask: Array | None = None
            if self.separator is not None:
                ends = ids[at] == self.separator
                resets[:, 1:] = np.maximum(resets[:, 1:], ends[:, :-1])
                resets[:, 0] = np.maximum(resets[:, 0], ids[np.maximum(at[:, 0] - 1, 0)] == self.separator)
                mask = (~ends).astype(np.float32)
            inputs = {INPUT: ids[at].astype(np.int32), RESETS: resets}
            yield Batch(inputs, ids[at + 1].astype(np.int32), mask)

    def arrays(self) -> ArrayData:
        """Return the same batches as arrays in memory: samples are windows, in the order of the batches."""
        every = list(self.batches(0))
        inputs = {name: np.concatenate([one.given[name] for one in every]) for name in (INPUT, RESETS)}
        masks = [one.mask for one in every if isinstance(one.mask, np.ndarray)]
        return ArrayData(
            inputs=inputs,
            targets=np.concatenate([np.asarray(one.targets) for one in every]),
            mask=np.concatenate(masks) if masks else None,
            batch_size=self.batch,
            shuffle=False,
        )

    def describe(self) -> dict[str, Any]:
        """Return sizes and a checksum."""
        sizes = {"length": self.length, "batch": self.batch, "separator": self.separator}
        return {"kind": "stream_windows", **sizes, "ids": len(self.ids), "crc32": checksum(np.asarray(self.ids))}
