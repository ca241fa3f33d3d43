"""Windows of long texts: parallel streams; each batch has the next rows of every stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError, SpecError
from volumetric.network import INPUT
from volumetric.train.data import ArrayData, Batch, checksum, ids_of_text

RESETS = "resets"
"""Name of the resets among the inputs of a batch; unless an input has this name."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamWindows:
    """Batches of token ids for next-token training with ``mode=Backprop(carry=True)``.

    The ids are split into `batch` streams of equal length; batch n has rows n · length … of each stream, with the
    following ids as targets. A stream is reset at its first row, and at every document.

    Attributes
    ----------
    ids : integers ``[N]``, or a text, whose UTF-8 bytes are the ids
    length : rows of a window
    batch : streams
    separator : id that ends a document; None: a single document. The mask excludes the first token of a document from
        the loss

    Raises
    ------
    ShapeError : a stream has fewer than `length` + 1 ids
    SpecError : a number is below 1
    """

    ids: Any
    length: int = 128
    batch: int = 16
    separator: int | None = None

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in ("length", "batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"windows: {name} must be an integer above 0, got {value!r}")
        ids = ids_of_text(self.ids)
        object.__setattr__(self, "ids", ids)
        if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
            raise ShapeError(f"windows: ids must be integers [N], got {ids.dtype} {list(ids.shape)}")
        if self.windows < 1:
            least = self.batch * self.length + 1
            raise ShapeError(
                f"{self.batch} streams with windows of {self.length} need at least {least} ids, got {len(ids)}"
            )

    @property
    def windows(self) -> int:
        """Batches of an epoch; an incomplete window at the end of a stream is dropped."""
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
        """Return the same batches as arrays in memory: each sample is a window, in the order of the batches."""
        every = list(self.batches(0))
        inputs = {name: np.concatenate([one.inputs_by_name[name] for one in every]) for name in (INPUT, RESETS)}
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
