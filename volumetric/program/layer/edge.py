"""Edges: one region attends to another and is written with the result."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base.errors import SpecError
from volumetric.layers.clock import Clock, Inner
from volumetric.layers.field_checks import as_number, check_choice, check_whole
from volumetric.program.layer.edge_masks import Bits, Full, Mask, Rects, Tile
from volumetric.program.layer.name_checks import (
    OPERATORS,
    Named,
    check_edge_name,
    check_name,
    check_named,
    check_word,
    format_value,
    rule_of,
)
from volumetric.program.layer.region import clock_of, clock_text

Write = Literal["add", "replace", "gate"]
Fill = Literal["drop", "hold", "lerp"]
LONGEST_LAG = 65_536
BY_OPERATOR: Final[Mapping[str, tuple[str | None, Write]]] = MappingProxyType(
    {
        "retrieve": ("cross", "add"),
        "write": ("copy", "replace"),
        "act": ("copy", "replace"),
        "compress": ("pooling", "add"),
        "intervene": (None, "replace"),
        "bind": ("cross", "add"),
    }
)
"""Rule and write mode of operators; others use the region's rule, and ``"add"``."""


class Edge(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At each step the region `writes` attends to the region `reads`, and the result is written to it.

    Attributes
    ----------
    reads : region whose positions are keys and values
    writes : region whose positions are queries, and are written
    rule : attention rule; None: that of the operator, then that of the region written, then cross
    operator : purpose of the edge; sets the default rule and write mode
    write : ``"add"`` (weighted mean over all edges that add), ``"gate"`` (added to it, through a learned gate) or
        ``"replace"`` (the last such edge in order wins over all); None: that of the operator, or ``"add"``
    weight : weight in the mean of edges that add; with 0 it writes nothing and does not count
    when : condition, a value of `layers.clock` or its text, stored as text; None: always
    mask : which positions attend to which; a position that attends to none is not written and does not count
    lag : steps back to read, frame by frame; negative: ahead, on a canvas with a window; None: all frames at once
    fill : for a missing frame: ``"drop"`` reads nothing, ``"hold"`` the latest before, ``"lerp"`` interpolates
    order : for ``"lerp"``: 1 is linear between one before and one after; n takes the n + 1 nearest frames, with weights
        ∝ 1 / distanceⁿ
    heads : number of attention heads; None: that of the program
    options : options of its rule by name
    name : name in the keys of its parameters and states; None: ``"writes<reads#k"``, with k counting edges of the pair
    """

    reads: str
    writes: str
    rule: str | None = None
    operator: str = "attend"
    write: Write | None = None
    weight: float = 1.0
    when: str | None = None
    mask: Mask | None = None
    lag: int | None = None
    fill: Fill = "hold"
    order: int = 1
    heads: int | None = None
    options: Mapping[str, int | float | str] = Named()
    name: str | None = None

    if TYPE_CHECKING:  # also accepts conditions as values

        def __init__(
            self,
            reads: str,
            writes: str,
            rule: str | None = None,
            operator: str = "attend",
            write: Write | None = None,
            weight: float = 1.0,
            when: Clock | str | None = None,
            mask: Mask | None = None,
            lag: int | None = None,
            fill: Fill = "hold",
            order: int = 1,
            heads: int | None = None,
            options: Mapping[str, int | float | str] = ...,
            name: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Check the fields."""
        check_name("an edge: reads", self.reads)
        check_name("an edge: writes", self.writes)
        what = f"edge {self.writes}<{self.reads}"
        if self.rule is not None:
            force_setattr(self, "rule", rule_of(what, self.rule))
        check_choice(f"{what}: operator", self.operator, OPERATORS)
        if self.write is not None:
            check_choice(f"{what}: write", self.write, ("add", "replace", "gate"))
        force_setattr(self, "weight", as_number(f"{what}: weight", self.weight, 0.0))
        force_setattr(self, "when", clock_text(f"{what}: when", self.when))
        if isinstance(self.holds, Inner):
            raise SpecError(f"{what}: a condition cannot have inner steps", hint="set them in the region's clock")
        if self.mask is not None and not isinstance(self.mask, Full | Tile | Rects | Bits):
            raise SpecError(f"{what}: mask must be Full, Tile, Rects or Bits, got {format_value(self.mask)}")
        if self.lag is not None:
            check_whole(f"{what}: lag", self.lag, -LONGEST_LAG, most=LONGEST_LAG)
        check_choice(f"{what}: fill", self.fill, ("drop", "hold", "lerp"))
        check_whole(f"{what}: order", self.order, most=16)
        if self.heads is not None:
            check_whole(f"{what}: heads", self.heads)
        force_setattr(self, "options", _options(what, self.options))
        if self.name is not None:
            check_edge_name(self.name)

    @property
    def holds(self) -> Clock | None:
        """The condition, None: always."""
        return None if self.when is None else clock_of(self.when)


def _options(what: str, options: Mapping[str, int | float | str]) -> Named[int | float | str]:
    """Return the options with integral numbers as integers, so that equal options have equal texts."""
    checked: dict[str, int | float | str] = {}
    for name, value in check_named(f"{what}: options", options, (int, float, str)).items():
        check_word(f"{what}: an option", name)
        number = value if isinstance(value, str) else as_number(f"{what}: option {name!r}", value)
        checked[name] = int(number) if isinstance(number, float) and number.is_integer() else number
    return Named(checked)
