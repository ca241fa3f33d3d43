"""The grid: addresses of layers in a volume, links between them, and additional inputs. Geometry only."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from numbers import Integral, Real
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from volumetric.base._typing import Shape
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)

_LAST_ID, _LARGEST = 2**31 - 1, (2 - 2**-23) * 2.0**127
"""Largest values of int32 and float32 inputs."""

_DIGITS = 20
"""Most digits of a number in an address: enough for any index; Python refuses thousands."""


@dataclass(frozen=True, slots=True, order=True)
class Coord:
    """Address of one layer: depth, row, column of its cell, and the slot in it. Sorts in reading order."""

    z: int
    y: int = 0
    x: int = 0
    slot: int = 0

    def __post_init__(self) -> None:
        """Refuse text and tuples, which `of` takes."""
        if self.z.__class__ is not int and not isinstance(self.z, Integral):
            raise SpecError(f"Coord takes numbers, got {self.z!r:.60}", hint=f"write Coord.of({self.z!r:.60})")

    @classmethod
    def parse(cls, text: str) -> Coord:
        """Parse ``"z.y.x.slot"``; raise `SpecError` for anything else."""
        parts = text.split(".")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < _DIGITS for part in parts):
            raise SpecError(
                f"{text!r} is not a coordinate", hint='write depth.row.column.slot with points, such as "1.0.0.2"'
            )
        return cls(*map(int, parts))

    @classmethod
    def of(cls, value: object) -> Coord:
        """Return a coordinate from a coordinate, its text, a tuple of one to four numbers, depth first, or a depth.

        Raises
        ------
        SpecError : `value` is none of these
        """
        if isinstance(value, Coord):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        if isinstance(value, Integral):
            value = (value,)
        parts = (
            tuple(map(_as_whole_number, value))
            if isinstance(value, (tuple, list)) and 1 <= len(value) <= 4
            else (None,)
        )
        if None in parts:
            raise SpecError(
                f"{value!r:.60} is not a coordinate", hint='write Coord(1, 0, 0, 2), (1, 0, 0, 2) or "1.0.0.2"'
            )
        return cls(*(part for part in parts if part is not None))

    def __str__(self) -> str:
        return f"{self.z}.{self.y}.{self.x}.{self.slot}"


CoordLike: TypeAlias = Coord | str | int | tuple[int, ...]
"""What `Coord.of` takes."""


def _as_whole_number(value: object) -> int | None:
    """Return a whole number, of Python or NumPy, as an int; None for other values."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        return None
    whole = int(value)
    return whole if whole >= 0 else None


_STEPS = [(z, y, x) for z, y, x in product((-1, 0, 1), repeat=3) if z or y or x]
AROUND: Final[Mapping[int, tuple[tuple[int, int, int], ...]]] = MappingProxyType(
    {most: tuple(step for step in _STEPS if sum(map(abs, step)) <= axes) for most, axes in ((6, 1), (18, 2), (26, 3))}
)
"""Number of neighbours of a cell → the steps to them, in reading order."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A volume of ``depth × rows × cols`` cells with `slots` layers each, read in the order z, y, x, slot."""

    depth: int
    rows: int = 1
    cols: int = 1
    slots: int = 1

    def __post_init__(self) -> None:
        """Check that every side is at least 1."""
        for name in ("depth", "rows", "cols", "slots"):
            size = getattr(self, name)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise SpecError(
                    f"grid: {name} must be a whole number above 0, got {size!r}",
                    hint="pass the sides one by one: Grid(4, 4, 4)"
                    if isinstance(size, tuple | list)
                    else "sides count cells and are at least 1: Grid(4, 1, 1)",
                )
        if self.depth * self.rows * self.cols * self.slots > sys.maxsize:
            raise SpecError("grid: too many slots")

    @property
    def sides(self) -> tuple[int, int, int, int]:
        """Depth, rows, cols, slots."""
        return self.depth, self.rows, self.cols, self.slots

    def __len__(self) -> int:
        return self.depth * self.rows * self.cols * self.slots

    def __contains__(self, coord: object) -> bool:
        return isinstance(coord, Coord) and all(
            0 <= at < side for at, side in zip((coord.z, coord.y, coord.x, coord.slot), self.sides, strict=True)
        )

    def __iter__(self) -> Iterator[Coord]:
        """Every coordinate in reading order."""
        return map(self.coord, range(len(self)))

    def index(self, coord: Coord) -> int:
        """Return the index of `coord` in reading order; raise `SpecError` outside of the grid."""
        if coord not in self:
            raise SpecError(
                f"coordinate {coord} is outside of the grid {'×'.join(map(str, self.sides))}",
                hint="coordinates count from 0: depth, row, column, slot; omit the grid to get one that fits",
            )
        return ((coord.z * self.rows + coord.y) * self.cols + coord.x) * self.slots + coord.slot

    def coord(self, index: int) -> Coord:
        """Return the coordinate at an index: the inverse of `index`."""
        if not 0 <= index < len(self):
            raise SpecError(f"index {index} is outside of a grid of {len(self)} slots")
        cell, slot = divmod(index, self.slots)
        plane, x = divmod(cell, self.cols)
        z, y = divmod(plane, self.rows)
        return Coord(z, y, x, slot)

    def neighbours(self, coord: Coord, most: Literal[6, 18, 26] = 6) -> Iterator[Coord]:
        """Yield the same slot of the cells around the cell of `coord`, in reading order.

        Those are the cells that share a face with it (6); or also an edge (18); or also a corner (26).
        """
        self.index(coord)
        for dz, dy, dx in AROUND[most]:
            near = Coord(coord.z + dz, coord.y + dy, coord.x + dx, coord.slot)
            if near in self:
                yield near


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A connection in addition to the chain.

    Attributes
    ----------
    source, target : coordinates, also by position: ``Link((0, 0, 0, 1), "2.0.0.0")``
    kind : ``"activation"``: the target reads the source's output; ``"shared"``: the target uses the source's weights
    combine : for activations, ``"replace"`` the chain's value as input, or ``"add"`` to it. Several are summed.
    delay : for activations: reads the source's output this many rows of the sequence earlier, zeros before the start of
        a sequence. With 0, the same row, the source must come earlier in reading order; with 1 or more the source may
        be any layer, also the target
    param, source_param : for shared weights, the parameter of the target and that of the source; None: all parameters
        of the target, by the same names
    """

    kind: Literal["activation", "shared"] = "activation"
    source: Coord = field(kw_only=False)
    target: Coord = field(kw_only=False)
    combine: Literal["replace", "add"] = "replace"
    param: str | None = None
    source_param: str | None = None
    delay: int = 0

    if TYPE_CHECKING:

        def __init__(
            self,
            source: CoordLike,
            target: CoordLike,
            *,
            kind: Literal["activation", "shared"] = ...,
            combine: Literal["replace", "add"] = ...,
            param: str | None = ...,
            source_param: str | None = ...,
            delay: int = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Check that the fields are consistent."""
        object.__setattr__(self, "source", Coord.of(self.source))
        object.__setattr__(self, "target", Coord.of(self.target))
        if self.kind not in ("activation", "shared"):
            raise SpecError(f"unknown link kind {self.kind!r}", hint='one of "activation", "shared"')
        if self.combine not in ("replace", "add"):
            raise SpecError(f"unknown link combine {self.combine!r}", hint='one of "replace", "add"')
        if self.kind == "activation" and (self.param or self.source_param):
            raise SpecError(f"activation link {self.source} → {self.target} names a parameter")
        if (self.param is None) != (self.source_param is None):
            raise SpecError(f"shared link {self.source} → {self.target} names a parameter on one side only")
        if not isinstance(self.delay, int) or isinstance(self.delay, bool) or self.delay < 0:
            raise SpecError(
                f"link {self.source} → {self.target}: delay must be 0 or more rows, got {self.delay!r}",
                hint="delay=1 reads the output of the row before",
            )
        if self.delay and self.kind != "activation":
            raise SpecError(f"shared link {self.source} → {self.target}: shared weights cannot have a delay")


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An additional input of a network, read by one layer.

    Attributes
    ----------
    coord : coordinate of the layer that reads it
    shape : shape of one row: ``()`` for ids, ``(features,)`` for features
    dtype : ``"int32"`` for ids, else ``"float32"``
    combine : ``"replace"`` the chain's value as the layer's input, or ``"add"`` to it, like a `Link`
    default : value of all elements if a call omits the input; None: the input is required
    """

    coord: Coord = field(kw_only=False)
    shape: Shape = ()
    dtype: Literal["int32", "float32"] = "float32"
    combine: Literal["replace", "add"] = "replace"
    default: float | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            coord: CoordLike,
            *,
            shape: Sequence[int] | int = ...,
            dtype: Literal["int32", "float32"] = ...,
            combine: Literal["replace", "add"] = ...,
            default: float | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Check the fields."""
        object.__setattr__(self, "coord", Coord.of(self.coord))
        if self.dtype not in ("int32", "float32"):
            raise SpecError(f"unknown dtype {self.dtype!r} of an input", hint='one of "int32" (ids), "float32"')
        if self.combine not in ("replace", "add"):
            raise SpecError(f"unknown combine {self.combine!r} of an input", hint='one of "replace", "add"')
        if isinstance(self.shape, int):
            object.__setattr__(self, "shape", (self.shape,))
        if any(not isinstance(n, int) or isinstance(n, bool) or n < 1 for n in self.shape):
            raise SpecError(f"an input's rows cannot have the shape {list(self.shape)}", hint="sizes are 1 or more")
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "default", self._checked_default())

    def _checked_default(self) -> float | None:
        """Return `default` as a number of the input's dtype."""
        number, ids = self.default, self.dtype == "int32"
        if number is None:
            return None
        known = isinstance(number, Real) and not isinstance(number, bool)
        if not known or not (0 <= number <= _LAST_ID if ids else abs(number) <= _LARGEST) or (ids and number % 1):
            expected = "a whole number of at least 0" if ids else "a finite number"
            raise SpecError(f"the default of an input of {self.dtype} must be {expected} within its range, or None")
        return int(number) if ids else float(number)


def check_name(name: object, what: str) -> None:
    """Raise `SpecError` unless `name` is valid for an input or output: letters, digits and ``_.-``, at most 64."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        shown = repr(name) if len(repr(name)) <= 70 else f"{repr(name)[:70]}…"
        raise SpecError(
            f"{what} cannot be called {shown}",
            hint='write a letter or "_", then letters, digits, "_", "." and "-", at most 64 in all',
        )
