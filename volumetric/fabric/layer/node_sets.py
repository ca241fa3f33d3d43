"""Sets of nodes by place: bands, regions, corners, or ids."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.fabric.layer.node_graphs import AXES, Graph, NodePlaces
from volumetric.layers.field_checks import as_number, check_choice, check_whole, whole_numbers

Side = Literal["low", "high"]
Part: TypeAlias = tuple[float, float]


def _band(graph: Graph, axis: int, side: Side, width: int, name: str) -> Array:
    if isinstance(graph, NodePlaces) or axis >= len(graph.sizes):
        raise SpecError(f"{name}: there is no axis {AXES[axis]} here", hint="pass node ids")
    size = graph.sizes[axis]
    if width > size:
        raise SpecError(f"{name}: a band of {width} does not fit an axis of {size}")
    at = graph.coords()[:, axis]
    return np.flatnonzero(at < width if side == "low" else at >= size - width)


def _check_band(name: str, side: Any, width: Any) -> None:
    check_choice(f"{name}: side", side, ("low", "high"))
    check_whole(f"{name}: width", width)


class XBand(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="x_band"):
    """The first or last `width` columns along x."""

    side: Side = "low"
    width: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_band("XBand", self.side, self.width)

    def ids(self, graph: Graph) -> Array:
        """Ids of its nodes, rising."""
        return _band(graph, 0, self.side, self.width, "XBand")


class YBand(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="y_band"):
    """The first or last `width` rows along y."""

    side: Side = "low"
    width: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_band("YBand", self.side, self.width)

    def ids(self, graph: Graph) -> Array:
        """Ids of its nodes, rising."""
        return _band(graph, 1, self.side, self.width, "YBand")


class ZBand(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="z_band"):
    """The first or last `width` layers along z."""

    side: Side = "low"
    width: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        _check_band("ZBand", self.side, self.width)

    def ids(self, graph: Graph) -> Array:
        """Ids of its nodes, rising."""
        return _band(graph, 2, self.side, self.width, "ZBand")


class Region(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="region"):
    """A box: along each axis the nodes in a half-open interval of fractions of the side."""

    x: Part = (0.0, 1.0)
    y: Part = (0.0, 1.0)
    z: Part = (0.0, 1.0)

    def __post_init__(self) -> None:
        """Check the fields."""
        for name in AXES:
            span = getattr(self, name)
            if not isinstance(span, list | tuple) or len(span) != 2:
                raise SpecError(f"Region: {name} must be (from, to), got {format_value(span)}", hint="(0.0, 0.5)")
            low, high = (as_number(f"Region: {name}", part) for part in span)
            force_setattr(self, name, (low, high))
            if not 0 <= low < high <= 1:
                raise SpecError(f"Region: {name} cannot go from {low} to {high}", hint="0 ≤ from < to ≤ 1")

    def ids(self, graph: Graph) -> Array:
        """Ids of its nodes, rising."""
        at = graph.coords() / np.asarray(graph.extent)
        inside = np.ones(len(at), bool)
        for axis, name in enumerate(AXES[: at.shape[1]]):
            low, high = getattr(self, name)
            inside &= (at[:, axis] >= low) & ((at[:, axis] < high) | (high == 1))
        return np.flatnonzero(inside)


class Corners(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="corners"):
    """Blocks of `size` nodes a side in every corner of a lattice."""

    size: int = 1

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Corners: size", self.size)

    def ids(self, graph: Graph) -> Array:
        """Ids of its nodes, rising."""
        if isinstance(graph, NodePlaces):
            raise SpecError("Corners: only a lattice has corners", hint="pass node ids")
        at = graph.coords()
        near = (at < self.size) | (at >= np.asarray(graph.sizes) - self.size)
        return np.flatnonzero(near.all(1))


Nodes: TypeAlias = XBand | YBand | ZBand | Region | Corners | tuple[int, ...]
"""A set of nodes."""


def nodes_of(what: str, value: Any) -> Nodes:
    """Return a set of nodes with ids as a tuple; accepts a list, a range or an array of ids.

    Raises
    ------
    SpecError : `value` is no set of nodes; the message begins with `what`
    """
    return value if isinstance(value, XBand | YBand | ZBand | Region | Corners) else whole_numbers(what, value)


def ids_of(nodes: Nodes, graph: Graph, what: str) -> Array:
    """Return the ids of a set of nodes, ascending.

    Raises
    ------
    SpecError : an id is unknown or a duplicate, or the set is empty
    """
    if isinstance(nodes, tuple):
        ids = np.asarray(nodes, np.int64).reshape(-1)
        wrong = ids[(ids < 0) | (ids >= graph.count)]
        if wrong.size:
            raise SpecError(f"{what}: there is no node {wrong[0]}", hint=f"nodes are 0 … {graph.count - 1}")
        if len(np.unique(ids)) != len(ids):
            raise SpecError(f"{what} has a duplicate node")
        ids = np.sort(ids)
    else:
        ids = nodes.ids(graph)
    if not ids.size:
        raise SpecError(f"{what} has no nodes")
    return ids
