"""A canvas: frames of positions, on which regions are boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from volumetric.errors import SpecError
from volumetric.layers.checks import check_whole, tuple_of
from volumetric.layers.program.names import Named, check_name, named
from volumetric.layers.program.region import Region

MOST_POSITIONS = 2**22
MOST_NUMBERS = 2**32
"""Numbers of a canvas, at most: 16 GiB for each stream."""
MOST_AXES = 8
WIDEST = 2**16


class Canvas(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Positions with a vector each, and regions of them.

    Positions are numbered row by row over ``(frame, *space)``. Regions may overlap; a position of none is carried
    along.

    Attributes
    ----------
    frames : length of the time axis
    shape : sides of space
    width : length of the vector of a position
    regions : by name; their order is that of ports of the same kind, of codes and of states
    current : first frame that counts in losses over the canvas
    """

    frames: int
    shape: tuple[int, ...]
    width: int
    regions: Mapping[str, Region]
    current: int = 0

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Canvas: frames", self.frames, most=MOST_POSITIONS)
        force_setattr(self, "shape", tuple_of("Canvas: shape", self.shape, int))
        if not 1 <= len(self.shape) <= MOST_AXES:
            count = f"{len(self.shape):,}" if self.shape else "no"
            raise SpecError(f"Canvas: shape has {count} sides", hint=f"1 to {MOST_AXES}")
        for side in self.shape:
            check_whole("Canvas: a side", side, most=MOST_POSITIONS)
        check_whole("Canvas: width", self.width, most=WIDEST)
        check_whole("Canvas: current", self.current, 0, most=self.frames)
        numbers = self.positions * self.width
        if self.positions > MOST_POSITIONS or numbers > MOST_NUMBERS:
            raise SpecError(
                f"Canvas: {self.positions:,} positions would take {numbers / 2**28:,.1f} GiB for each stream; "
                f"at most {MOST_POSITIONS:,} are possible, and {MOST_NUMBERS / 2**28:,.0f} GiB"
            )
        regions = named("Canvas: regions", self.regions, Region)
        if not regions:
            raise SpecError("Canvas: has no regions")
        for name in regions:
            check_name("a region", name)
        placed = {name: self._placed(name, region) for name, region in regions.items()}
        force_setattr(self, "regions", Named(placed))

    @property
    def sides(self) -> tuple[int, ...]:
        """Sides of all axes, frames first."""
        return (self.frames, *self.shape)

    @property
    def positions(self) -> int:
        """Number of positions."""
        return math.prod(self.sides)

    def _placed(self, name: str, region: Region) -> Region:
        """The region, with frames in its box."""
        if len(region.box) == len(self.shape):
            region = replace(region, box=((0, self.frames), *region.box))
        if len(region.box) != len(self.sides):
            raise SpecError(
                f"region {name!r}: a box of {len(region.box)} axes on a canvas of {len(self.sides)}",
                hint=f"(low, high) along frames and the {len(self.shape)} axes of space, or along space alone",
            )
        for axis, ((low, high), side) in enumerate(zip(region.box, self.sides, strict=True)):
            if high > side:
                where = "frames" if axis == 0 else f"axis {axis - 1} of space"
                raise SpecError(f"region {name!r}: its box from {low} to {high} leaves the {side} of {where}")
        return region
