"""A change of a program: the new program, the sources of new parameters, and the parts with parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from volumetric.program.layer.edge import Edge
from volumetric.program.layer.ports import Port
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of, rule_of_edge
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.region import Region

Mark = Callable[[tuple[Any, ...]], int]
"""Returns the historical marking of an event; equal events in a generation have equal markings."""
_LAST: Final = ("o.weight", "o.bias", "proj.weight", "proj.bias")
"""Parameters that make a rule contribute nothing if they are zeros."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutatedProgram:
    """A program after a change.

    Parameters with unchanged name and shape stay, and so do rows of slots; others are fresh unless listed here.

    Attributes
    ----------
    copies : part → part of the old program whose parameters it copies
    closed : edges whose last product is initialised to zeros, so that they contribute nothing
    begins : new parameter → its initial value
    """

    program: Program
    copies: Mapping[str, str] = field(default_factory=dict)
    closed: tuple[str, ...] = ()
    begins: Mapping[str, float] = field(default_factory=dict)

    def source_of(self, param: str) -> str | None:
        """Return the parameter of the old program that a new parameter copies."""
        for part, source in self.copies.items():
            if param.startswith(f"{part}."):
                return source + param[len(part) :]
        return None

    def first_of(self, param: str) -> float | None:
        """Return the initial value of a new parameter; None: fresh values."""
        closed = any(param.startswith(f"edges.{name}.") for name in self.closed) and param.endswith(_LAST)
        return 0.0 if closed else self.begins.get(param)


def region_replaced(program: Program, name: str, region: Region) -> Program:
    """Return a program with the region `name` replaced."""
    return replace(program, canvas=replace(program.canvas, regions={**program.canvas.regions, name: region}))


def edge_replaced(program: Program, at: int, edge: Edge) -> Program:
    """Return a program with edge `at` replaced."""
    return replace(program, edges=(*program.edges[:at], edge, *program.edges[at + 1 :]))


def goes_by_rows(param: str) -> bool:
    """Whether a parameter has a row for each slot of a region."""
    return param.startswith("regions.") and param.endswith(".slots")


def can_close(rule: str) -> bool:
    """Whether edges of a rule can start without a contribution: the rule ends with a product."""
    return rule not in ("copy", "none")


def stays_as_it_was(program: Program, region: str) -> bool:
    """Whether a gated edge without contribution leaves a region unchanged.

    Regions of other carriers distinguish written from unwritten values, and so does a package's program with parity.
    """
    return program.canvas.regions[region].carrier == "deterministic" and not program.parity


CODES = "codes"


def parts_of(spec: Layer) -> dict[str, tuple[str, ...]]:
    """Return the names of the parameters of each part.

    Parts are ``edges.<name>``, ``regions.<name>``, ``ports.<name>`` and `CODES`. Edges that share one set of parameters
    are one part, named after the first edge; only parts with parameters are included.
    """
    program = spec.program
    known = {
        "edges": [edge.name or "" for edge in program.edges],
        "regions": [*program.canvas.regions],
        "ports": [*program.ports],
    }
    parts: dict[str, list[str]] = {}
    for param in spec.params():
        parts.setdefault(_part(param.name, known), []).append(param.name)
    return {part: tuple(names) for part, names in parts.items()}


def genes_of(program: Program) -> dict[str, Region | Edge | Port]:
    """Return regions, edges and ports by part name."""
    genes: dict[str, Region | Edge | Port] = {}
    genes |= {f"regions.{name}": region for name, region in program.canvas.regions.items()}
    genes |= {f"edges.{edge.name}": edge for edge in program.edges}
    return genes | {f"ports.{name}": port for name, port in program.ports.items()}


def kind_of_part(spec: Layer, part: str) -> str:
    """Return the kind of a part: rule of an edge, carrier of a region, or port; only equal kinds are comparable."""
    what, _, name = part.partition(".")
    if what == "edges":
        edge = next(edge for edge in spec.program.edges if edge.name == name)
        return f"edge {rule_of_edge(spec.program, edge)}"
    if what == "regions":
        return f"region {facts_of(spec.program).place(name).carrier}"
    return what


def _part(param: str, known: dict[str, list[str]]) -> str:
    what, _, rest = param.partition(".")
    owners: Iterable[str] = known.get(what, ())
    mine = [name for name in owners if rest.startswith(f"{name}.")]  # names may have dots: use the longest match
    return f"{what}.{max(mine, key=len)}" if mine else CODES
