"""Differences between two programs, and whether parameters of one fit the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from volumetric.base._typing import Shape
from volumetric.base.hints import format_value
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_params import all_params
from volumetric.program.layer.region import Region
from volumetric.program.layer.text import program_to_dict

OTHER_FAMILY = 0.3
OTHER_CARRIER = 0.2
MISSING: Any = ...
_LEARNED = {
    "canvas": ("width",),
    "region": ("box", "family", "carrier", "slots", "identity", "period", "rule"),
    "edge": ("reads", "writes", "rule", "operator", "options", "heads", "write"),
    "port": ("kind", "region", "dim", "pool"),
    "program": ("share", "heads", "parity"),
}
"""Fields that determine the set, the shapes and the meaning of parameters."""


class ProgramChange(NamedTuple):
    """One difference between two programs.

    Attributes
    ----------
    of : kind of the part: program, canvas, region, edge, port or meter
    name : name of the part; "" for the program and its canvas
    field : name of the field; "" for the whole part
    before, after : values as in JSON; `MISSING` if absent
    """

    of: str
    name: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        """Return a line of text."""
        place = " ".join(part for part in (self.of, self.name) if part)
        if not self.field:
            return f"+ {place}" if self.before is MISSING else f"- {place}"
        return f"~ {place}: {self.field} {_value_text(self.before)} → {_value_text(self.after)}"


@dataclass(frozen=True)
class Compared:
    """Result of a comparison of two programs.

    Attributes
    ----------
    verdict : ``"equal"``; ``"extends"``: all parameters of the first fit the second; or ``"conflicts"``
    changes : all differences
    conflicts : differences that make parameters of the first not fit the second, or change their meaning
    lost : parameters of the first that are missing in the second, or have another shape there
    """

    verdict: Literal["equal", "extends", "conflicts"]
    changes: tuple[ProgramChange, ...]
    conflicts: tuple[ProgramChange, ...]
    lost: tuple[str, ...]

    def __str__(self) -> str:
        """Return the verdict and its reasons, line by line."""
        verdict_texts = {
            "equal": "equal",
            "extends": "the second extends the first: its parameters load by key",
            "conflicts": "conflicts: parameters of the first do not fit the second",
        }
        marked = [f"{'! ' if change in self.conflicts else '  '}{change}" for change in self.changes]
        return "\n".join([verdict_texts[self.verdict], *marked, *(f"! parameter {name}" for name in self.lost)])


def diff(a: Program, b: Program) -> tuple[ProgramChange, ...]:
    """Return the differences from `a` to `b`: regions, edges and ports by name, field by field."""
    return () if a == b else tuple(_changes(program_to_dict(a), program_to_dict(b)))


def compatible(a: Program, b: Program) -> Compared:
    """Return whether parameters of `a` load by key into `b`: it has all regions, edges and ports, with equal sizes.

    Raises
    ------
    SpecError : one of them cannot be run: masks do not fit, or a rule has unsupported options
    """
    changes = diff(a, b)
    conflicts = tuple(change for change in changes if _conflict(change))
    after = parameters_of(b)
    lost = tuple(name for name, shape in parameters_of(a).items() if after.get(name) != shape)
    verdict = "equal" if not changes else "conflicts" if conflicts or lost else "extends"
    return Compared(verdict, changes, conflicts, lost)


def parameters_of(program: Program) -> dict[str, Shape]:
    """Return the parameters of a program, each with its shape."""
    return {of.name: of.shape for of in all_params(facts_of(program))}


def distances(a: Program, b: Program, *, most: float = math.inf) -> list[tuple[str, str, float]]:
    """Return the semantic distances between regions of two programs, pair by pair, nearest first.

    The distance is ``1 - cos`` of the semantic vectors, + 0.3 if families differ, + 0.2 if carriers differ. Only
    vectors of the same model and length are compared.

    Parameters
    ----------
    most : maximum distance of the pairs to return
    """
    pairs = (
        (x, y, _semantic_distance(one, other))
        for x, one in a.canvas.regions.items()
        for y, other in b.canvas.regions.items()
    )
    near_pairs = [(x, y, apart) for x, y, apart in pairs if apart is not None and apart <= most]
    return sorted(near_pairs, key=lambda pair: pair[2])


def _semantic_distance(one: Region, other: Region) -> float | None:
    if one.semantic is None or other.semantic is None:
        return None
    u, v = one.semantic.vector, other.semantic.vector
    if u is None or v is None or len(u) != len(v) or one.semantic.model != other.semantic.model:
        return None
    length = math.hypot(*u) * math.hypot(*v)
    if not length:
        return None
    cos = sum(x * y for x, y in zip(u, v, strict=True)) / length
    return 1 - cos + OTHER_FAMILY * (one.family != other.family) + OTHER_CARRIER * (one.carrier != other.carrier)


def _conflict(change: ProgramChange) -> bool:
    if not change.field:
        return change.after is MISSING and change.of != "meter"
    if change.field == "write":
        return "gate" in (change.before, change.after)
    if change.field == "box":
        return _count(change.before) != _count(change.after)
    return change.field in _LEARNED.get(change.of, ())


def _count(box: list[list[int]]) -> int:
    return math.prod(high - low for low, high in box)


def _changes(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ProgramChange]:
    yield from _fields("program", "", *({k: v for k, v in one.items() if k not in _PARTS} for one in (a, b)))
    canvases = [dict(one["canvas"]) for one in (a, b)]
    regions = [canvas.pop("regions") for canvas in canvases]
    yield from _fields("canvas", "", *canvases)
    yield from _by_name("region", *regions)
    edges = [{edge["name"]: edge for edge in one.get("edges", ())} for one in (a, b)]
    yield from _by_name("edge", *edges)
    yield from _by_name("port", a.get("ports", {}), b.get("ports", {}))
    yield from _by_name("meter", *({of["region"]: of for of in one.get("meters", ())} for one in (a, b)))


_PARTS = ("canvas", "edges", "ports", "meters")


def _by_name(of: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ProgramChange]:
    for name, one in a.items():
        if name in b:
            yield from _fields(of, name, one, b[name])
        else:
            yield ProgramChange(of, name, "", one, MISSING)
    for name, one in b.items():
        if name not in a:
            yield ProgramChange(of, name, "", MISSING, one)
    before, after = ([name for name in names if name in a and name in b] for names in (a, b))
    if before != after:
        yield ProgramChange(f"{of}s", "", "order", before, after)


def _fields(of: str, name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[ProgramChange]:
    for field in dict.fromkeys((*a, *b)):
        before, after = a.get(field, MISSING), b.get(field, MISSING)
        if before != after:
            yield ProgramChange(of, name, field, before, after)


def _value_text(value: Any) -> str:
    return "default" if value is MISSING else format_value(value)
