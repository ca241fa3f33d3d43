"""Edges by families: what regions of two families do to each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal

from msgspec import Struct

from volumetric.layers.checks import check_flag
from volumetric.layers.program.canvas import Canvas
from volumetric.layers.program.edge import BY_OPERATOR, Edge
from volumetric.layers.program.names import FAMILIES

BY_FAMILIES: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("observation", "state"): "observe",
        ("state", "observation"): "predict",
        ("state", "state"): "integrate",
        ("state", "memory"): "write",
        ("memory", "state"): "retrieve",
        ("state", "action"): "act",
        ("action", "state"): "intervene",
        ("state", "residual"): "emit_residual",
        ("observation", "residual"): "emit_residual",
        ("residual", "state"): "correct",
        **{(family, family): "attend" for family in FAMILIES if family != "state"},
    }
)
"""Families of (reads, writes) → operator."""


class Autowire(Struct, frozen=True, forbid_unknown_fields=True):
    """Stands in a list of edges for all that families ask for.

    Attributes
    ----------
    loops : regions read themselves, too
    """

    loops: bool = True

    def __post_init__(self) -> None:
        """Check the fields."""
        check_flag("autowire: loops", self.loops)


def operator_of(reads: str, writes: str) -> str | None:
    """Return the operator between two families, None if they have nothing to do with each other."""
    return BY_FAMILIES.get((reads, writes), "attend" if reads == writes else None)


def wired(canvas: Canvas, given: Iterable[Edge | Autowire]) -> Iterator[Edge]:
    """Yield edges, and in the place of an `Autowire` those by families between pairs that no other edge joins.

    None of these writes a constant. None replaces what others bring: an edge whose operator replaces adds instead where
    it is an *intervene*, which meets all that a state gets, or where several would replace the same region.
    """
    edges = list(given)
    joined = {(edge.reads, edge.writes) for edge in edges if isinstance(edge, Edge)}
    for edge in edges:
        if isinstance(edge, Edge):
            yield edge
            continue
        for writes, to in canvas.regions.items():
            if to.carrier == "constant":
                continue
            for reads, source in canvas.regions.items():
                operator = operator_of(source.family, to.family)
                free = (reads, writes) not in joined and (edge.loops or reads != writes)
                if operator is not None and free:
                    joined.add((reads, writes))
                    yield Edge(reads=reads, writes=writes, operator=operator, write=_write(canvas, operator, writes))


def _write(canvas: Canvas, operator: str, writes: str) -> Literal["add"] | None:
    """Return how an edge by families writes, None: as its operator does."""
    if BY_OPERATOR.get(operator, (None, "add"))[1] != "replace":
        return None
    of, family = canvas.regions, canvas.regions[writes].family
    rivals = sum(operator_of(source.family, family) == operator for source in of.values())
    return "add" if operator == "intervene" or rivals > 1 else None
