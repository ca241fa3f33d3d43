"""What a compiler did to a program, and why."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from volumetric.program.layer.declared import Program
from volumetric.program.layer.facts import facts_of
from volumetric.program.layer.parameters import all_params
from volumetric.program.layer.timing import all_states, timing_of

Action = Literal["removed", "changed", "kept"]
_SIGNS: dict[str, str] = {"removed": "-", "changed": "~", "kept": "="}


class Note(NamedTuple):
    """One thing that the compiler did, or could have been expected to do.

    Attributes
    ----------
    action : ``"removed"``, ``"changed"``, or ``"kept"`` although it looks as if it could go
    of : of what: port, region, edge, meter, clock, condition, learning or canvas
    name : which one; a clock, learning and a meter by the name of their region, a condition by that of its edge
    why : the reason
    """

    action: Action
    of: str
    name: str
    why: str

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{_SIGNS[self.action]} {' '.join(part for part in (self.of, self.name) if part)}: {self.why}"


@dataclass(frozen=True, slots=True)
class Counts:
    """How large a program is.

    Attributes
    ----------
    regions, edges, ports, clocks, meters : how many; equal clocks are one
    positions : of the canvas
    parameters : numbers that are learned
    state : numbers that are kept of a stream
    """

    regions: int
    edges: int
    ports: int
    clocks: int
    meters: int
    positions: int
    parameters: int
    state: int


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a program.

    Attributes
    ----------
    before, after : how large it was and is
    notes : what was done and why, in the order in which it was done; then what was not, and why
    """

    before: Counts
    after: Counts
    notes: tuple[Note, ...]

    def __str__(self) -> str:
        """Return what was and is, and a line for each note."""
        after = asdict(self.after)
        sizes = [
            f"{name}: {count:,} → {after[name]:,}" if count != after[name] else f"{name}: {count:,}"
            for name, count in asdict(self.before).items()
        ]
        return "\n".join([*sizes, *map(str, self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, which JSON takes."""
        return {
            "before": asdict(self.before),
            "after": asdict(self.after),
            "notes": [note._asdict() for note in self.notes],
        }


@dataclass(slots=True)
class Log:
    """Notes while they are made, each once."""

    notes: dict[Note, None] = field(default_factory=dict)

    def add(self, action: Action, of: str, names: Iterable[str], why: str) -> None:
        """Note the same of several things."""
        self.notes |= {Note(action, of, name, why): None for name in names}


def counts_of(program: Program) -> Counts:
    """Return how large a program is."""
    facts = facts_of(program)
    return Counts(
        regions=len(facts.places),
        edges=len(facts.wires),
        ports=len(program.ports),
        clocks=len(timing_of(facts).clocks),
        meters=sum(place.meter is not None for place in facts.places),
        positions=program.canvas.positions,
        parameters=sum(math.prod(of.shape) for of in all_params(facts)),
        state=sum(math.prod(shape) for shape in all_states(facts).values()),
    )
