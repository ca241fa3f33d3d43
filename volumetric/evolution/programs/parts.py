"""Parts of a program that have parameters: each edge, region and port, and the codes of positions."""

from __future__ import annotations

from collections.abc import Iterable

from volumetric.layers.program.declared import Program as Declared
from volumetric.layers.program.edge import Edge
from volumetric.layers.program.facts import facts_of, rule_of_edge
from volumetric.layers.program.ports import Port
from volumetric.layers.program.region import Region
from volumetric.layers.program.spec import Program

CODES = "codes"


def parts_of(spec: Program) -> dict[str, tuple[str, ...]]:
    """Return the names of the parameters of each part.

    Parts are ``edges.<name>``, ``regions.<name>``, ``ports.<name>`` and `CODES`. Edges that share one set of parameters
    are one part, called as the first of them; what has no parameters is no part.
    """
    program = spec.program
    known = {
        "edges": [edge.name or "" for edge in program.edges],
        "regions": [*program.canvas.regions],
        "ports": [*program.ports],
    }
    found: dict[str, list[str]] = {}
    for param in spec.params():
        found.setdefault(_part(param.name, known), []).append(param.name)
    return {part: tuple(names) for part, names in found.items()}


def genes_of(program: Declared) -> dict[str, Region | Edge | Port]:
    """Return regions, edges and ports by the names of their parts."""
    found: dict[str, Region | Edge | Port] = {}
    found |= {f"regions.{name}": region for name, region in program.canvas.regions.items()}
    found |= {f"edges.{edge.name}": edge for edge in program.edges}
    return found | {f"ports.{name}": port for name, port in program.ports.items()}


def kind_of_part(spec: Program, part: str) -> str:
    """Return what a part is: an edge by its rule, a region by its carrier, a port; parts of two kinds are not alike."""
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
    mine = [name for name in owners if rest.startswith(f"{name}.")]  # names may have dots: the longest is meant
    return f"{what}.{max(mine, key=len)}" if mine else CODES
