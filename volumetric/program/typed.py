"""Programs from types: fields of objects become regions, packed on a canvas; nesting determines the edges."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as with_default
from itertools import pairwise
from typing import Any, Literal

from msgspec.structs import replace

from volumetric.base.errors import SpecError
from volumetric.layers.field_checks import check_choice, check_whole
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.ports import Port
from volumetric.program.layer.program_declaration import Program, operator_of
from volumetric.program.layer.region import Canvas, Region
from volumetric.program.layer.region_learning import Semantic

Sides = tuple[int, ...]
Box = tuple[tuple[int, int], ...]
ENDLESS = 2**62


def pack_boxes(sides: Mapping[str, Sides], shape: Sides) -> dict[str, Box]:
    """Return a place for each box, in order: along the last axis, then in rows, then in layers.

    A row is as deep as its deepest box; a box that does not fit starts the next row.

    Raises
    ------
    SpecError : the shape is too small; the message suggests a larger one
    """
    for name, of in sides.items():
        for axis, (side, room) in enumerate(zip(of, shape, strict=True)):
            if side > room:
                raise SpecError(
                    f"field {name!r} is {_shape_text(of)}, the canvas {_shape_text(shape)}: axis {axis} is too short",
                    hint=f"shape={shape_for(sides)} has room for all fields",
                )
    places = _shelve_boxes(sides, (ENDLESS, *shape[1:]))
    needed = max(box[0][1] for box in places.values())
    if needed > shape[0]:
        raise SpecError(
            f"fields need a canvas of {_shape_text((needed, *shape[1:]))}, this one is {_shape_text(shape)}",
            hint=f"use shape={(needed, *shape[1:])}, or no shape: then the canvas is as large as needed",
        )
    return places


def shape_for(sides: Mapping[str, Sides]) -> Sides:
    """Return a shape, about as long as wide, with room for all boxes."""
    axes = len(next(iter(sides.values())))
    total = sum(math.prod(of) for of in sides.values())
    side = math.ceil(total ** (1 / axes) - 1e-9)
    widest = [max(of[axis] for of in sides.values()) for axis in range(axes)]
    rest = tuple(max(side, most) for most in widest[1:])
    return (max(box[0][1] for box in _shelve_boxes(sides, (ENDLESS, *rest)).values()), *rest)


def _shelve_boxes(sides: Mapping[str, Sides], shape: Sides) -> dict[str, Box]:
    axes = len(shape)
    at, deep = [0] * axes, [0] * axes
    places: dict[str, Box] = {}
    for name, of in sides.items():
        for axis in range(axes - 1, 0, -1):
            if at[axis] + of[axis] > shape[axis]:  # start the next row, or layer, …
                at[axis:] = [0] * (axes - axis)
                at[axis - 1] += deep[axis - 1]
                deep[axis - 1 :] = [0] * (axes - axis + 1)
        places[name] = tuple((low, low + side) for low, side in zip(at, of, strict=True))
        deep = [max(most, side) for most, side in zip(deep, of, strict=True)]
        at[-1] += of[-1]
    return places


def _shape_text(sides: Sides) -> str:
    return "×".join(map(str, sides))


DEEPEST = 64


@dataclass(frozen=True, init=False, slots=True)
class Field:
    """A region without a place on the canvas yet.

    Parameters
    ----------
    h, w : sides for two spatial axes
    shape : sides for any number of spatial axes, instead of `h` and `w`
    frames : number of frames, starting with the first; None: all
    region : fields of a `Region`: ``family="observation"``, ``carrier="filter"``, …
    """

    shape: tuple[int, ...]
    frames: int | None
    region: Region

    def __init__(
        self, h: int = 1, w: int = 1, *, shape: Sequence[int] | None = None, frames: int | None = None, **region: Any
    ) -> None:
        if shape is not None and (h, w) != (1, 1):
            raise SpecError("Field: pass h and w, or shape")
        sides = (h, w) if shape is None else tuple(shape)
        if not sides:
            raise SpecError("Field: shape has no sides")
        for side in sides:
            check_whole("Field: a side", side)
        if frames is not None:
            check_whole("Field: frames", frames)
        unknown = [name for name in region if name not in Region.__struct_fields__ or name == "box"]
        if unknown:
            known = [name for name in Region.__struct_fields__ if name != "box"]
            check_choice("Field", unknown[0], known)
        for name, value in (("shape", sides), ("frames", frames), ("region", Region(((0, 1),), **region))):
            object.__setattr__(self, name, value)

    def replace(self, **region: Any) -> Field:
        """Return a copy with changed fields of its region."""
        fields = {name: getattr(self.region, name) for name in Region.__struct_fields__ if name != "box"}
        return Field(shape=self.shape, frames=self.frames, **fields | region)


Within = Literal["dense", "isolated", "chain", "star"]
Arrays = Literal["isolated", "dense", "matched", "ring"]
Temporal = Literal["dense", "causal", "same_frame"]


def compile(  # noqa: A001  (its name in the field)
    root: Any,
    *,
    frames: int = 1,
    shape: Sequence[int] | None = None,
    width: int = 64,
    within: Within = "dense",
    arrays: Arrays = "isolated",
    temporal: Temporal = "dense",
    interleaved: bool = False,
    ports: Mapping[str, Port] | None = None,
) -> Program:
    """Return the program of an object whose attributes are fields, objects of the same kind, and lists of these.

    The name of a region is its path, ``"arms[0].joints"``. A nested object has a *coarse* region at its own path, which
    exchanges edges with its fields and with those of the outer object. It is the dataclass field's
    ``metadata["coarse"]``, the class attribute ``__coarse__``, or one position; its period is the mean of the regions
    below it, weighted by their positions. A pair that nesting joins becomes an edge if its families have an operator.

    Parameters
    ----------
    root : a dataclass, a pydantic model, or any object
    frames, shape, width : size of the canvas; without a shape it is as small as packing allows
    within : edges between fields of one object: all pairs (``"dense"``), only self-edges (``"isolated"``), self-edges
        and the preceding field (``"chain"``), or self-edges and both directions with the first field (``"star"``)
    arrays : edges between elements of a list: none, between all coarse regions (``"dense"``), between neighbouring ones
        in a ``"ring"``, or between fields of the same name (``"matched"``)
    temporal : edges see all frames at once, only the ``"same_frame"``, or (``"causal"``) the preceding frame, and each
        region its own frame as well
    interleaved : place fields of the same name next to each other on the canvas
    ports : ports of the program

    Raises
    ------
    SpecError : there is no field, objects are nested too deeply, or the shape is too small
    """
    check_choice("within", within, ("dense", "isolated", "chain", "star"))
    check_choice("arrays", arrays, ("isolated", "dense", "matched", "ring"))
    check_choice("temporal", temporal, ("dense", "causal", "same_frame"))
    tree = _object_tree(root, "", [])
    entries = list(_all_fields(tree))
    if not entries:
        raise SpecError("there is no Field in this object", hint="camera: Field = Field(4, 4, family='observation')")
    axes = max(len(of.field.shape) for of in entries) if shape is None else len(shape)
    order = _grouped_by_name(entries) if interleaved else entries
    sides = {of.path: _sides(of, axes) for of in order}
    shape = shape_for(sides) if shape is None else tuple(shape)
    boxes = pack_boxes(sides, shape)
    regions = {of.path: _region(of, boxes[of.path], frames) for of in entries}
    canvas = Canvas(frames, shape, width, regions)
    pairs = dict.fromkeys(_pairs(tree, within, arrays))
    edges = [edge for pair in pairs for edge in _edges(canvas, pair, temporal)]
    return Program(canvas, edges, ports or {})


@dataclass(frozen=True, slots=True)
class _FieldEntry:
    """A field at its path; `name` is the attribute's name."""

    path: str
    field: Field
    name: str


@dataclass(slots=True)
class _ObjectNode:
    """An object: its fields, and its nested objects by attribute, one or a list."""

    path: str
    coarse: _FieldEntry | None = None
    fields: list[_FieldEntry] = with_default(default_factory=list)
    inside: list[tuple[bool, list[_ObjectNode]]] = with_default(default_factory=list)


def _object_tree(of: Any, path: str, above: list[Any]) -> _ObjectNode:
    """Return the tree of an object."""
    if len(above) > DEEPEST:
        raise SpecError(f"{path[:70]}: objects are nested more than {DEEPEST} levels deep")
    node = _ObjectNode(path)
    ones: list[tuple[bool, list[_ObjectNode]]] = []
    lists: list[tuple[bool, list[_ObjectNode]]] = []
    for name in _names(of):
        value = getattr(of, name, None)
        place = f"{path}.{name}" if path else name
        if isinstance(value, Field):
            node.fields.append(_FieldEntry(place, value, name))
        elif isinstance(value, list | tuple):
            node.fields += [_FieldEntry(f"{place}[{i}]", v, name) for i, v in enumerate(value) if isinstance(v, Field)]
            nodes = [_inner_node(of, v, name, f"{place}[{i}]", [*above, of]) for i, v in enumerate(value) if _kind(v)]
            lists.append((True, [one for one in nodes if one is not None]))
        elif _kind(value):
            inner = _inner_node(of, value, name, place, [*above, of])
            ones += [] if inner is None else [(False, [inner])]
    node.inside = [*ones, *(one for one in lists if one[1])]
    return node


def _kind(value: Any) -> bool:
    """Return whether a value may contain fields."""
    return not isinstance(value, Field | int | float | str | bytes | type(None) | type) and bool(_names(value))


def _names(of: Any) -> list[str]:
    if dataclasses.is_dataclass(of):
        return [one.name for one in dataclasses.fields(of)]
    pydantic = getattr(type(of), "model_fields", None)
    if isinstance(pydantic, Mapping):
        return list(pydantic)
    return [name for name in getattr(of, "__dict__", ()) if not name.startswith("_")]


def _inner_node(holder: Any, of: Any, name: str, path: str, above: list[Any]) -> _ObjectNode | None:
    """Return a nested object with its coarse region; None: it has no fields, or contains itself."""
    if any(of is one for one in above):
        return None
    node = _object_tree(of, path, above)
    below = list(_all_fields(node))
    if not below:
        return None
    named = {one.name: one for one in dataclasses.fields(holder)} if dataclasses.is_dataclass(holder) else {}
    metadata = named[name].metadata.get("coarse") if name in named else None
    coarse = next((one for one in (metadata, getattr(type(of), "__coarse__", None)) if isinstance(one, Field)), Field())
    positions = [math.prod(one.field.shape) for one in below]
    mean = sum(one.field.region.period * n for one, n in zip(below, positions, strict=True)) / sum(positions)
    semantic = coarse.region.semantic or Semantic(f"coarse: {path}")
    node.coarse = _FieldEntry(path, coarse.replace(period=max(1, round(mean)), semantic=semantic), name)
    return node


def _all_fields(node: _ObjectNode) -> Iterator[_FieldEntry]:
    """Return all fields below a node, its own coarse field first."""
    yield from () if node.coarse is None else (node.coarse,)
    yield from node.fields
    for _, nodes in node.inside:
        for one in nodes:
            yield from _all_fields(one)


def _grouped_by_name(entries: Sequence[_FieldEntry]) -> list[_FieldEntry]:
    names = list(dict.fromkeys(of.name for of in entries))
    return sorted(entries, key=lambda of: names.index(of.name))


def _sides(of: _FieldEntry, axes: int) -> tuple[int, ...]:
    if len(of.field.shape) > axes:
        raise SpecError(f"field {of.path!r} has {len(of.field.shape)} axes, the canvas {axes}")
    return (*of.field.shape, *[1] * (axes - len(of.field.shape)))


def _region(of: _FieldEntry, box: tuple[tuple[int, int], ...], frames: int) -> Region:
    last = min(of.field.frames or frames, frames)
    words = re.sub(r"\[(\d+)\]", r" \1", of.path.replace(".", " / ").replace("_", " "))
    return replace(of.field.region, box=((0, last), *box), semantic=of.field.region.semantic or Semantic(words))


def _pairs(node: _ObjectNode, within: Within, arrays: Arrays) -> Iterator[tuple[str, str]]:
    """Return the pairs (writes, reads) that nesting joins."""
    yield from _sibling_pairs(node.fields, within)
    for listed, nodes in node.inside:
        for one in nodes:
            assert one.coarse is not None
            yield one.coarse.path, one.coarse.path
            yield from _pairs(one, within, arrays)
            yield from _mutual_pairs([one.coarse], one.fields)
            yield from _mutual_pairs(node.fields, [one.coarse])
        if listed:
            yield from _list_pairs(nodes, arrays)


def _sibling_pairs(fields: Sequence[_FieldEntry], within: Within) -> Iterator[tuple[str, str]]:
    if within == "dense":
        yield from ((a.path, b.path) for a in fields for b in fields)
        return
    if within != "star":
        yield from ((of.path, of.path) for of in fields)
        if within == "chain":
            yield from ((after.path, before.path) for before, after in pairwise(fields))
        return
    for number, of in enumerate(fields):
        yield of.path, of.path
        if number:
            yield from _mutual_pairs(fields[:1], [of])


def _list_pairs(nodes: Sequence[_ObjectNode], arrays: Arrays) -> Iterator[tuple[str, str]]:
    coarse = [one.coarse for one in nodes if one.coarse is not None]
    if arrays == "dense":
        yield from ((a.path, b.path) for a in coarse for b in coarse if a is not b)
    elif arrays == "ring" and len(coarse) > 1:
        for a, b in zip(coarse, [*coarse[1:], coarse[0]], strict=True):
            yield from _mutual_pairs([a], [b])
    elif arrays == "matched":
        for one in nodes:
            for other in nodes:
                same = ((a, b) for a in one.fields for b in other.fields if a.name == b.name and one is not other)
                yield from ((a.path, b.path) for a, b in same)


def _mutual_pairs(first: Sequence[_FieldEntry], second: Sequence[_FieldEntry]) -> Iterator[tuple[str, str]]:
    for a in first:
        for b in second:
            yield a.path, b.path
            yield b.path, a.path


def _edges(canvas: Canvas, pair: tuple[str, str], temporal: Temporal) -> Iterator[Edge]:
    writes, reads = pair
    operator = operator_of(canvas.regions[reads].family, canvas.regions[writes].family)
    if operator is None or canvas.regions[writes].carrier == "constant":
        return
    lags: tuple[int | None, ...] = (None,) if temporal == "dense" else (0,) if temporal == "same_frame" else (1,)
    if temporal == "causal" and writes == reads:
        lags = (0, 1)
    for lag in lags:
        yield Edge(reads=reads, writes=writes, operator=operator, lag=lag)
