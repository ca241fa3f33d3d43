"""Places of a fabric's nodes: on a lattice, or at arbitrary coordinates."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.layers.field_checks import as_number, check_flag, check_whole, tuple_of, whole_numbers

MOST_NODES = 2**20
"""Maximum number of nodes of a fabric."""
AXES = ("x", "y", "z")


class Lattice(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="lattice"):
    """Nodes at whole coordinates; node ``(x · height + y) · depth + z`` is at ``(x, y[, z])``.

    Attributes
    ----------
    sizes : width and height, and in three dimensions depth
    wrap : opposite sides are adjacent: along an axis the distance is ``min(|Δ|, size - |Δ|)``
    """

    sizes: tuple[int, ...]
    wrap: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        force_setattr(self, "sizes", whole_numbers("lattice: sizes", self.sizes))
        if len(self.sizes) not in (2, 3):
            raise SpecError(f"lattice: sizes must be 2 or 3 numbers, got {list(self.sizes)}")
        for size in self.sizes:
            check_whole("lattice: a side", size)
        check_flag("lattice: wrap", self.wrap)
        if math.prod(self.sizes) > MOST_NODES:
            raise SpecError(f"lattice: {math.prod(self.sizes):,} nodes, at most {MOST_NODES:,} are possible")

    @property
    def count(self) -> int:
        """Number of nodes."""
        return math.prod(self.sizes)

    @property
    def extent(self) -> tuple[float, ...]:
        """Divisor of coordinates that scales them to between 0 and 1."""
        return tuple(map(float, self.sizes))

    def coords(self) -> Array:
        """Coordinates of all nodes, float64 ``[N, axes]``."""
        places = np.indices(self.sizes).reshape(len(self.sizes), -1).T
        return np.ascontiguousarray(places, np.float64)

    def distances(self, a: Array, b: Array) -> Array:
        """Return distances between coordinates, ``[…, axes]`` each."""
        along = np.abs(a - b)
        if self.wrap:
            along = np.minimum(along, np.asarray(self.extent) - along)
        return np.sqrt(np.sum(along * along, -1))

    def tiles(self, shape: tuple[int, ...]) -> Array:
        """Return the tile of each node, int64 ``[N]``; the last tiles along an axis may be smaller."""
        if len(shape) != len(self.sizes):
            raise SpecError(f"a tile of {list(shape)} does not fit a lattice of {len(self.sizes)} axes")
        for side in shape:
            check_whole("a side of a tile", side)
        counts = [-(-size // side) for size, side in zip(self.sizes, shape, strict=True)]
        places = np.indices(self.sizes).reshape(len(self.sizes), -1) // np.array(shape)[:, None]
        return np.asarray(np.ravel_multi_index(list(places), counts))


class NodePlaces(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="explicit"):
    """Nodes at arbitrary coordinates, in any number of dimensions; distances are Euclidean."""

    places: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """Check the fields."""
        rows = self.places.tolist() if isinstance(self.places, np.ndarray) else self.places
        places = tuple_of("coordinates of nodes", rows, (list, tuple, np.ndarray))
        what = "a coordinate"
        force_setattr(self, "places", tuple(tuple(as_number(what, x) for x in np.atleast_1d(at)) for at in places))
        if not self.places:
            raise SpecError("a graph needs a node", hint="pass coordinates, one tuple for each node")
        if len(self.places) > MOST_NODES:
            raise SpecError(f"{len(self.places):,} nodes, at most {MOST_NODES:,} are possible")
        axes = {len(place) for place in self.places}
        if len(axes) != 1 or 0 in axes:
            raise SpecError("coordinates of all nodes must have the same number of axes, at least 1")

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self.places)

    @property
    def extent(self) -> tuple[float, ...]:
        """Divisor of coordinates: the largest of each axis, or 1."""
        most = np.abs(self.coords()).max(0)
        return tuple(float(m) if m > 0 else 1.0 for m in most)

    def coords(self) -> Array:
        """Coordinates of all nodes, float64 ``[N, axes]``."""
        return np.asarray(self.places, np.float64)

    def distances(self, a: Array, b: Array) -> Array:
        """Return distances between coordinates, ``[…, axes]`` each."""
        return np.sqrt(np.sum((a - b) ** 2, -1))

    def tiles(self, shape: tuple[int, ...]) -> Array:
        """Raise: these nodes have no tiles."""
        raise SpecError("nodes at arbitrary coordinates have no tiles", hint='use share="all", or a lattice')


Graph: TypeAlias = Lattice | NodePlaces
