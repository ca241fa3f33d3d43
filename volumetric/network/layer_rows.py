"""The layers of a network as rows of a table, in which equal planes, rows and columns of the grid are one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from volumetric.base._typing import Shape
from volumetric.layers import LayerSpec
from volumetric.network.blueprint import LayerFact, blueprint
from volumetric.network.grid import Coord
from volumetric.network.network import Network
from volumetric.network.weight_store import WeightStore

_AXES = ("z", "y", "x")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """A layer of one place of the grid, or of several that are alike.

    Attributes
    ----------
    first, last : opposite corners of the box of places
    path : path of a nested layer, ``"/0"``
    label : its kind, indented by its depth of nesting, with what is special about it
    activation : activation of its elements at the end, if it has one
    input, output : shapes
    weights : number of elements of its own tensors, at one place
    tensors : names and shapes of these
    dtypes : types in which these are stored; empty if not known
    clock : text of its clock; empty if it has none
    spec : the layer; None for nested ones
    """

    first: Coord
    last: Coord
    path: str
    label: str
    activation: str
    input: Shape
    output: Shape
    weights: int
    tensors: tuple[str, ...]
    dtypes: tuple[str, ...]
    clock: str
    spec: LayerSpec | None = field(compare=False)

    @property
    def where(self) -> str:
        """Coordinate, with ranges for several places: ``"0…3.0.0.0"``."""
        ends = ((getattr(self.first, axis), getattr(self.last, axis)) for axis in _AXES)
        numbers = [str(a) if a == b else f"{a}…{b}" for a, b in ends]
        return ".".join([*numbers, str(self.first.slot)]) + self.path

    @property
    def places(self) -> int:
        """Number of places."""
        sides = [getattr(self.last, axis) - getattr(self.first, axis) + 1 for axis in _AXES]
        return sides[0] * sides[1] * sides[2]


def layer_rows(
    network: Network, params: Mapping[str, WeightStore] | None = None, clocks: Mapping[Coord, object] | None = None
) -> list[LayerRow]:
    """Return the layers in reading order, nested ones after their containers, alike ones of the grid together."""
    rows = [_row(network, depth, fact, clocks or {}) for depth, fact in blueprint(network, params).walk()]
    for axis in range(len(_AXES)):
        rows = list(_merge(rows, axis))
    return rows


def _merge(rows: Sequence[LayerRow], axis: int) -> Iterator[LayerRow]:
    """Yield the rows, with consecutive equal slabs across an axis as one."""
    name = _AXES[axis]
    outer = _AXES[:axis]

    def slab(row: LayerRow) -> tuple[int, ...]:
        return *(getattr(row.first, of) for of in outer), getattr(row.first, name)

    slabs = [list(group) for _, group in groupby(rows, key=slab)]
    for _, run in groupby(enumerate(slabs), key=lambda item: _content(item[1], axis)):
        alike = [group for _, group in run]
        for first, last in zip(alike[0], alike[-1], strict=True):
            yield dataclasses.replace(first, last=dataclasses.replace(first.last, **{name: getattr(last.last, name)}))


def _content(rows: Sequence[LayerRow], axis: int) -> list[object]:
    """Return what slabs must have in common to be one: everything but their place along the axis."""
    inner = _AXES[axis + 1 :]
    return [
        (
            *(getattr(row.first, of) for of in (*_AXES[:axis], *inner, "slot")),
            *(getattr(row.last, of) for of in (*_AXES[:axis], *inner)),
            dataclasses.replace(row, first=Coord(0), last=Coord(0)),
        )
        for row in rows
    ]


def _row(network: Network, depth: int, fact: LayerFact, clocks: Mapping[Coord, object]) -> LayerRow:
    coord, _, path = fact.where.partition("/")
    at = Coord.parse(coord)
    spec = None if path else network.layers[at]
    own = [p for p in fact.params if p.shared_from is None]
    return LayerRow(
        first=at,
        last=at,
        path=f"/{path}" if path else "",
        label="  " * depth + _label(fact),
        activation=str(fact.settings.get("activation", "")),
        input=fact.input,
        output=fact.output,
        weights=sum(p.elements for p in own),
        tensors=tuple(f"{p.key.removeprefix(fact.where + '/')} {'×'.join(map(str, p.shape))}" for p in own),
        dtypes=tuple(dict.fromkeys(str(p.scheme) for p in own if p.scheme is not None)),
        clock="" if path or at not in clocks else str(clocks[at]),
        spec=spec,
    )


def _label(fact: LayerFact) -> str:
    off = " (off)" if fact.disabled else ""
    shared = dict.fromkeys(p.shared_from.partition("/")[0] for p in fact.params if p.shared_from is not None)
    return fact.kind + off + (f" (weights of {', '.join(shared)})" if shared else "")
