"""Checks of regions' constraints against their edges."""

from __future__ import annotations

from collections.abc import Iterator

from volumetric.base.errors import SpecError
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, Wire
from volumetric.program.layer.reachability import reached_from
from volumetric.program.layer.region_learning import Constraints

BY_ORDER = ("copy", "local", "random_fixed", "mixture", "mamba", "rwkv", "hyena")
"""Rules that depend on the order of rows: they are not permutation-equivariant."""
IN_PLACE = ("random_fixed", "mixture", "rwkv", "mamba", "hyena")
"""Rules that are not equivariant to translation and rotation."""


def violations(facts: Facts) -> list[str]:
    """Return the violations of constraints, one sentence each."""
    return [
        f"region {place.name!r}: {sentence}"
        for place in facts.places
        if place.region.constraints is not None
        for sentence in _region_violations(facts, place.index, place.region.constraints)
    ]


def check_constraints(facts: Facts) -> None:
    """Raise `SpecError` if the program violates a constraint."""
    messages = violations(facts)
    if messages:
        more = f"; and {len(messages) - 1} more" if len(messages) > 1 else ""
        raise SpecError(messages[0] + more, hint="change the edge, or drop the constraint")


def _region_violations(facts: Facts, index: int, constraints: Constraints) -> Iterator[str]:
    place = facts.places[index]
    writers = [facts.wires[number] for number in facts.writers[index]]
    if constraints.conservation is not None:
        for wire in writers:
            if wire.write == "replace":
                yield f"conservation {constraints.conservation!r}, but edge {wire.name!r} replaces its content"
    if constraints.equivariance is not None:
        for wire in writers:
            why = _equivariance_violation(wire, constraints.equivariance)
            if why is not None:
                yield f"equivariance {constraints.equivariance!r}, but edge {wire.name!r} {why}"
    if constraints.monotone is not None and place.carrier in ("diffusive", "filter"):
        yield f"it is {constraints.monotone.replace('_', '-')}, but its carrier is {place.carrier!r}"
    if constraints.causal == "acyclic" and place.name in reached_from(facts.program, place.name):
        yield "it is acyclic, but what it reads depends on it"
    if constraints.causal == "forward_only":
        yield from _backward_violations(facts.program, place.name)


def _equivariance_violation(wire: Wire, equivariance: str) -> str | None:
    """Return why an edge is not equivariant, or None if it is."""
    rules = BY_ORDER if equivariance == "permutation" else IN_PLACE
    if wire.rule in rules:
        return f"has rule {wire.rule!r}"
    return None if wire.mask is None else "has a mask"


def _backward_violations(program: Program, name: str) -> Iterator[str]:
    begins = {region: spec.box[0][0] for region, spec in program.canvas.regions.items()}
    for edge in program.edges:
        if edge.writes == name and begins[edge.reads] < begins[name]:
            yield (
                f"it is forward-only, but it reads {edge.reads!r}, which begins at frame {begins[edge.reads]}, "
                f"before its own, {begins[name]}"
            )
