"""Common interface of all weight files: named tensors that are read one at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from volumetric.base._typing import Shape
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import Packed, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Location of one tensor in its file.

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
    """Named tensors of one checkpoint, in one or several files."""

    @property
    def entries(self) -> Mapping[str, TensorEntry]:
        """All tensors, in file order."""
        ...

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of the result of `packed`, or raise `CheckpointError` if it cannot be read."""
        ...

    def packed(self, name: str) -> Packed:
        """Read one tensor in its stored scheme, a view of the mapped file if the format allows it."""
        ...

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Read rows ``start:stop`` of one tensor like `packed`, with memory only for these rows if possible."""
        ...

    def release(self, name: str) -> None:
        """Allow the system to drop the mapped pages of one tensor."""
        ...


class MergedSource:
    """Several files whose tensors have distinct names, as one source.

    Parameters
    ----------
    parts : name of each file and its tensors, in order of `entries`

    Raises
    ------
    CheckpointError
        Two files have a tensor of the same name.
    """

    __slots__ = ("_home", "entries")

    def __init__(self, parts: Iterable[tuple[str, TensorSource]]) -> None:
        self._home: dict[str, TensorSource] = {}
        self.entries: dict[str, TensorEntry] = {}
        for where, part in parts:
            for name, entry in part.entries.items():
                if name in self.entries:
                    raise CheckpointError(
                        f"tensor {name!r} is in {where} and in another file of the same directory",
                        hint="the directory mixes two checkpoints: give one file, or an index",
                    )
                self.entries[name] = entry
                self._home[name] = part

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of one tensor."""
        return self.part_of(name).scheme(name)

    def packed(self, name: str) -> Packed:
        """Read one tensor."""
        return self.part_of(name).packed(name)

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Read some rows of one tensor."""
        return self.part_of(name).packed_rows(name, start, stop)

    def release(self, name: str) -> None:
        """Drop the mapped pages of one tensor."""
        self.part_of(name).release(name)

    def part_of(self, name: str) -> TensorSource:
        """Return the file that has a tensor."""
        if name not in self._home:
            raise CheckpointError(f"no file has a tensor {name!r}", hint=f"they have {len(self._home)} tensors")
        return self._home[name]
