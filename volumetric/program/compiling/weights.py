"""Parameters of a program that was made of another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from volumetric.layers.program.ends import codes_of
from volumetric.layers.program.facts import Facts
from volumetric.layers.program.parameters import all_params
from volumetric.layers.program.ports import In
from volumetric.layers.program.tasks import gate_of, names_of, tasks_of

T = TypeVar("T")


def carried(before: Facts, after: Facts, params: Mapping[str, T]) -> dict[str, T]:
    """Return the parameters of `after`, of which all edges are in `before`, by the names that they have there.

    Ports, regions and edges keep their names. Where edges of a rule share parameters, their owner can be another one.
    """
    old = {task.wire.name: names_of(before, task) for task in tasks_of(before)}
    origin: dict[str, str] = {}
    for task in tasks_of(after):
        origin |= {name: old[task.wire.name][of] for of, name in names_of(after, task).items()}
    return {of.name: params[origin.get(of.name, of.name)] for of in all_params(after)}


def owned_by(facts: Facts, regions: frozenset[str]) -> tuple[str, ...]:
    """Return the parameters that belong to some regions alone.

    Those of the regions, of ports at them, and of edges that write them; not what others share.
    """
    mine: set[str] = set()
    others: set[str] = set()
    for place in facts.places:
        (mine if place.name in regions else others).add(f"regions.{place.name}.")
    for name, port in facts.program.ports.items():
        region = getattr(port, "region", None)
        if region is None:
            continue
        names = {f"ports.{name}."}
        if isinstance(port, In):
            names |= set(codes_of(facts.place(region)))
        (mine if region in regions else others).update(names)
    for task in tasks_of(facts):
        (mine if task.place.name in regions else others).update({f"{task.owner}.", gate_of(task)})
    starts = tuple(mine - others)
    return tuple(of.name for of in all_params(facts) if of.name.startswith(starts)) if starts else ()
