"""Declarations of regions (boxes of a canvas), of their slots, and of the canvas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from volumetric.base.errors import SpecError
from volumetric.layers.clock import Clock
from volumetric.layers.field_checks import as_number, check_choice, check_flag, check_text, check_whole, tuple_of
from volumetric.program.layer.name_checks import (
    CARRIERS,
    KEEPS,
    Named,
    check_name,
    check_named,
    check_word,
    format_value,
    rule_of,
)
from volumetric.program.layer.region_learning import Constraints, Keep, Learning, Semantic

MOST_SLOTS = 65_536


class Identity(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Slots that the values of a region are bound to, and that edges read instead of its positions.

    ``slots' = LN(slots + cross(slots ← values))``, times a life gate σ(MLP(slots')) if there are births.

    Attributes
    ----------
    capacity : number of slots
    mode : ``"persistent"``: slots carry over from step to step; ``"ephemeral"``: each step starts with learned ones
    births : whether slots have a life gate
    """

    capacity: int = 64
    mode: Literal["persistent", "ephemeral"] = "persistent"
    births: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        check_whole("Identity: capacity", self.capacity, most=MOST_SLOTS)
        check_choice("Identity: mode", self.mode, ("persistent", "ephemeral"))
        check_flag("Identity: births", self.births)


Carrier = Literal["deterministic", "residual", "filter", "memory", "diffusive", "constant"]
LONGEST_PERIOD = 2**24
"""Limit of periods, since clocks count in float32."""


class Region(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A box of positions of a canvas.

    Attributes
    ----------
    box : half open, ``(low, high)`` along each axis, frames first; a canvas adds all frames to a box without them
    family : kind of content: observation, state, memory, residual, action, or any other word
    carrier : update equations
    tags : free text for people and tools
    period : frames of the world between two of its own frames
    clock : when it fires, a value of `layers.clock` or its text, stored as text; None: always
    rule : default rule of edges that write it; None: cross
    residual : additions of edges are added to its content; None: true for the families state and memory
    slots : rows of a carrier ``"memory"``, or of a ``"constant"`` that is read by rows instead of positions; None: as
        many as positions
    learning : its own losses; None: it learns only from the task's loss
    keep : treatment at deployment: ``"runtime"``, ``"freeze"``, ``"constant"``, ``"export"``, or ``"auto"``: that of
        `learning`, or of its family
    identity : slots through which it is read
    constraints : constraints on the region and its edges
    loss_weight : weight of its positions in losses over the canvas
    output : whether its positions count in these losses
    semantic : meaning of the region
    """

    box: tuple[tuple[int, int], ...]
    family: str = "state"
    carrier: Carrier = "deterministic"
    tags: tuple[str, ...] = ()
    period: int = 1
    clock: str | None = None
    rule: str | None = None
    residual: bool | None = None
    slots: int | None = None
    learning: Learning | None = None
    keep: Keep = "auto"
    identity: Identity | None = None
    constraints: Constraints | None = None
    loss_weight: float = 1.0
    output: bool = True
    semantic: Semantic | None = None

    if TYPE_CHECKING:  # also accepts clocks as values

        def __init__(
            self,
            box: Sequence[tuple[int, int]],
            family: str = "state",
            carrier: Carrier = "deterministic",
            tags: Sequence[str] = (),
            period: int = 1,
            clock: Clock | str | None = None,
            rule: str | None = None,
            residual: bool | None = None,
            slots: int | None = None,
            learning: Learning | None = None,
            keep: Keep = "auto",
            identity: Identity | None = None,
            constraints: Constraints | None = None,
            loss_weight: float = 1.0,
            output: bool = True,
            semantic: Semantic | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        """Check the fields."""
        force_setattr(self, "box", _box(self.box))
        check_word("a region: family", self.family)
        check_choice("a region: carrier", self.carrier, CARRIERS)
        force_setattr(self, "tags", tuple_of("a region: tags", self.tags, str))
        check_whole("a region: period", self.period, most=LONGEST_PERIOD)
        force_setattr(self, "clock", clock_text("a region: clock", self.clock))
        if self.rule is not None:
            force_setattr(self, "rule", rule_of("a region", self.rule))
        if self.residual is not None:
            check_flag("a region: residual", self.residual)
        if self.slots is not None:
            check_whole("a region: slots", self.slots, most=MOST_SLOTS)
            if self.carrier not in ("memory", "constant"):
                raise SpecError(f"a region: slots need carrier 'memory' or 'constant', got {self.carrier!r}")
        check_choice("a region: keep", self.keep, KEEPS)
        for name, kind in _PARTS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                raise SpecError(f"a region: {name} must be {kind.__name__}, got {format_value(value)}")
        if self.carrier == "constant":
            for name in ("clock", "learning", "identity"):
                if getattr(self, name) is not None:
                    raise SpecError(f"a region: a constant has no {name}", hint=f"it never changes; remove {name}")
        force_setattr(self, "loss_weight", as_number("a region: loss_weight", self.loss_weight, 0.0))
        check_flag("a region: output", self.output)

    @property
    def size(self) -> int:
        """Number of positions in its box."""
        return math.prod(high - low for low, high in self.box)

    @property
    def fires(self) -> Clock | None:
        """The clock, None: it always fires."""
        return None if self.clock is None else clock_of(self.clock)

    @property
    def keeps_old(self) -> bool:
        """Whether additions of edges are residual."""
        return self.family in ("state", "memory") if self.residual is None else self.residual


_PARTS = {"learning": Learning, "identity": Identity, "constraints": Constraints, "semantic": Semantic}


def clock_text(what: str, clock: Any) -> str | None:
    """Return the canonical text of a clock, from a value or any text; None stays None."""
    if clock is None or isinstance(clock, Clock):
        return None if clock is None else str(clock)
    check_text(what, clock)
    try:
        return str(clock_of(clock))
    except SpecError as error:
        raise SpecError(f"{what}: {str(error).removeprefix('clock: ')}", hint=error.hint) from None


@lru_cache(maxsize=4096)
def clock_of(text: str) -> Clock:
    """Parse a clock."""
    return Clock.parse(text)


def _box(box: Any) -> tuple[tuple[int, int], ...]:
    sides = tuple_of("a region: box", box, (list, tuple))
    if not sides:
        raise SpecError("a region: box has no sides", hint="use (low, high) along each axis, frames first")
    for side in sides:
        if len(side) != 2:
            raise SpecError(
                f"a region: a side of its box must be (low, high), got {format_value(side)}", hint="half open"
            )
        check_whole("a region: low end of its box", side[0], 0)
        check_whole("a region: high end of its box", side[1])
        if side[0] >= side[1]:
            raise SpecError(f"a region: its box from {side[0]} to {side[1]} is empty", hint="half open: low < high")
    return tuple((low, high) for low, high in sides)


MOST_POSITIONS = 2**22
MOST_NUMBERS = 2**32
"""Maximum number of values of a canvas: 16 GiB for each stream."""
MOST_AXES = 8
WIDEST = 2**16


class Canvas(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Positions with one vector each, and regions of them.

    Positions are numbered row by row over ``(frame, *space)``. Regions may overlap; positions outside all regions do
    not change.

    Attributes
    ----------
    frames : length of the time axis
    shape : sides of the spatial axes
    width : length of the vector of a position
    regions : regions by name; their order is that of ports of the same kind, of codes and of states
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
        regions = check_named("Canvas: regions", self.regions, Region)
        if not regions:
            raise SpecError("Canvas: has no regions")
        for name in regions:
            check_name("a region", name)
        placed = {name: self._placed(name, region) for name, region in regions.items()}
        force_setattr(self, "regions", Named(placed))

    @property
    def sides(self) -> tuple[int, ...]:
        """Lengths of all axes, frames first."""
        return (self.frames, *self.shape)

    @property
    def positions(self) -> int:
        """Number of positions."""
        return math.prod(self.sides)

    def _placed(self, name: str, region: Region) -> Region:
        """Return the region, with frames in its box."""
        if len(region.box) == len(self.shape):
            region = replace(region, box=((0, self.frames), *region.box))
        if len(region.box) != len(self.sides):
            raise SpecError(
                f"region {name!r}: a box of {len(region.box)} axes on a canvas of {len(self.sides)}",
                hint=f"use (low, high) for frames and the {len(self.shape)} spatial axes, or for the spatial axes only",
            )
        for axis, ((low, high), side) in enumerate(zip(region.box, self.sides, strict=True)):
            if high > side:
                where = "frames" if axis == 0 else f"spatial axis {axis - 1}"
                raise SpecError(
                    f"region {name!r}: its box from {low} to {high} exceeds the {side} of {where}",
                    hint=f"end it at {side} or before, or make the canvas larger: an end is not in the box",
                )
        return region
