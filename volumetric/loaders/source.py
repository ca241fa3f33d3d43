"""What every weight file looks like to the rest of the package: named tensors that are read one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from volumetric._typing import Shape
from volumetric.dtypes import Packed, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where one tensor lies in its file.

    Attributes
    ----------
    name : name in the file
    type : the file format's own spelling of the numeric type, ``"BF16"`` or ``"Q4_K"``
    shape : logical shape, row-major (last axis is contiguous)
    start, stop : byte range in the file
    """

    name: str
    type: str
    shape: Shape
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.stop - self.start


class TensorSource(Protocol):
    """Named tensors of one checkpoint, however many files it has."""

    @property
    def entries(self) -> Mapping[str, TensorEntry]:
        """All tensors, in file order."""
        ...

    def scheme(self, name: str) -> Scheme:
        """Return the scheme that `packed` will have, or raise `CheckpointError` if it cannot be read."""
        ...

    def packed(self, name: str) -> Packed:
        """Read one tensor in its stored numeric form, a view of the mapped file where the format allows it."""
        ...

    def release(self, name: str) -> None:
        """Let the system drop the mapped pages of one tensor."""
        ...
