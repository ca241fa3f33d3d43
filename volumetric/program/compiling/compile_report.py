"""Report of the compiler: changes to a program and their reasons."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple

from volumetric.base.text_table import TextTable
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_params import all_params
from volumetric.program.layer.timing import all_states, timing_of

Action = Literal["removed", "changed", "kept"]
_SIGNS: dict[str, str] = {"removed": "-", "changed": "~", "kept": "="}


class CompileNote(NamedTuple):
    """One change of the compiler, or one that it did not make.

    Attributes
    ----------
    action : ``"removed"``, ``"changed"``, or ``"kept"`` although it looks removable
    of : kind of the part: port, region, edge, meter, clock, condition, learning or canvas
    name : name of the part; for a clock, learning or meter that of its region, for a condition that of its edge
    why : the reason
    """

    action: Action
    of: str
    name: str
    why: str

    def __str__(self) -> str:
        """Return a line of text."""
        return f"{_SIGNS[self.action]} {' '.join(part for part in (self.of, self.name) if part)}: {self.why}"


@dataclass(frozen=True, slots=True)
class ProgramCounts:
    """Size of a program.

    Attributes
    ----------
    regions, edges, ports, clocks, meters : numbers of these; equal clocks count once
    positions : number of positions of the canvas
    parameters : number of learned values
    state : number of state values of a stream
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
    """Result of a compilation.

    Attributes
    ----------
    before, after : size of the program before and after
    notes : changes in the order in which they were made; then parts that were kept
    """

    before: ProgramCounts
    after: ProgramCounts
    notes: tuple[CompileNote, ...]

    def __str__(self) -> str:
        """Return both sizes, and a line for each note."""
        after = asdict(self.after)
        sizes = [
            f"{name}: {count:,} → {after[name]:,}" if count != after[name] else f"{name}: {count:,}"
            for name, count in asdict(self.before).items()
        ]
        return "\n".join([*sizes, *map(str, self.notes)])

    def _repr_html_(self) -> str:
        """Return the sizes as a table for notebooks, and the notes below."""
        after = asdict(self.after)
        rows = ((name, f"{count:,}", f"{after[name]:,}") for name, count in asdict(self.before).items())
        return TextTable(
            columns=("", "before", "after"),
            rows=tuple(rows),
            right=frozenset({"before", "after"}),
            notes=tuple(map(str, self.notes)),
        )._repr_html_()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "before": asdict(self.before),
            "after": asdict(self.after),
            "notes": [note._asdict() for note in self.notes],
        }


@dataclass(slots=True)
class CompileLog:
    """Collects notes without duplicates."""

    notes: dict[CompileNote, None] = field(default_factory=dict)

    def add(self, action: Action, of: str, names: Iterable[str], why: str) -> None:
        """Add the same note for several parts."""
        self.notes |= {CompileNote(action, of, name, why): None for name in names}


def counts_of(program: Program) -> ProgramCounts:
    """Return the size of a program."""
    facts = facts_of(program)
    return ProgramCounts(
        regions=len(facts.places),
        edges=len(facts.wires),
        ports=len(program.ports),
        clocks=len(timing_of(facts).clocks),
        meters=sum(place.meter is not None for place in facts.places),
        positions=program.canvas.positions,
        parameters=sum(math.prod(of.shape) for of in all_params(facts)),
        state=sum(math.prod(shape) for shape in all_states(facts).values()),
    )
