"""The network that changes make of the original one, with weights for all that is new in it."""

from __future__ import annotations

from dataclasses import replace

from volumetric.base.errors import SpecError
from volumetric.clocked import Clocked
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord
from volumetric.scope.sculpting.layer_links import (
    with_added_link,
    with_layer_clock,
    with_masked_layers,
    with_threshold,
    without_link,
)
from volumetric.scope.sculpting.network_changes import Changes
from volumetric.scope.sculpting.scene_places import ScenePlaces


def rebuild(origin: ScenePlaces, changes: Changes) -> ScenePlaces:
    """Return the network after changes; the original one if nothing changes it.

    Masked nodes of fabrics are not part of it: streams have them. A fabric with masked nodes is `dynamic`, though.

    Raises
    ------
    SpecError, ShapeError : a change is not possible
    """
    if not changes.of_network:
        return origin
    if origin.program is not None:
        from volumetric.scope.sculpting.program_changes import with_program_changes

        changed = with_program_changes(origin.program, changes)
        network = replace(origin.network, layers=dict.fromkeys(origin.network.layers, changed))
        return replace(origin, machine=network, params=_with_new(network, origin.params))
    machine = origin.machine
    network = _with_fabrics(origin, changes)
    for source, target in sorted(changes.cut):
        if not _within_fabric(origin, source, target):
            network = without_link(network, origin.coord(source), origin.coord(target))
    for edge in changes.added:
        if not _within_fabric(origin, edge.source, edge.target):
            ends = origin.coord(edge.source), origin.coord(edge.target)
            network = with_added_link(network, *ends, edge.delay, ticking=isinstance(machine, Clocked))
    for node, value in changes.thresholds.items():
        network = with_threshold(network, origin.coord(node), value)
    changed_machine = replace(machine, network=network) if isinstance(machine, Clocked) else network
    for node, text in changes.clocks.items():
        if not isinstance(node, int):
            raise SpecError(f"there is no edge {node!r:.60} with a clock", hint="edges of programs have clocks")
        changed_machine = with_layer_clock(changed_machine, origin.coord(node), text)
    masked = {origin.coord(node) for node in changes.masked} - origin.fabrics.keys()
    if masked:
        changed_machine = with_masked_layers(changed_machine, sorted(masked))
    return replace(origin, machine=changed_machine, params=_with_new(network, origin.params))


def _within_fabric(origin: ScenePlaces, source: int, target: int) -> bool:
    return origin.fabric(source) is not None and origin.coord(source) == origin.coord(target)


def _with_fabrics(origin: ScenePlaces, changes: Changes) -> Network:
    """Return the network with the changed edges of fabrics, and with fabrics whose nodes are masked dynamic."""
    network = origin.network
    for coord, part in origin.fabrics.items():
        from volumetric.scope.sculpting.fabric_edges import with_edges

        spec = part.spec
        order, first = spec.facts.order, part.first
        mine = range(first, first + part.count)
        cut = {(int(order[a - first]), int(order[b - first])) for a, b in changes.cut if a in mine and b in mine}
        added = [
            (int(order[edge.source - first]), int(order[edge.target - first]), edge.delay or 1)
            for edge in changes.added
            if edge.source in mine and edge.target in mine
        ]
        if cut or added:
            spec = with_edges(spec, cut, added)
        if not spec.dynamic and any(node in mine for node in changes.masked):
            spec = replace(spec, dynamic=True)
        if spec is not part.spec:
            network = network.with_layer(coord, spec)
    return network


def _with_new(network: Network, params: Params) -> Params:
    """Return weights for a changed network: those of the original one, and initial ones for what is new."""
    missing = [key for key in network.param_specs() if key not in params]
    if not missing:
        return params
    fresh = initialise(network)
    return Params({**params, **{key: fresh[key] for key in missing}})


def masked_layers(origin: ScenePlaces, changes: Changes) -> set[Coord]:
    """Return the masked layers that are no fabrics."""
    return set() if origin.program is not None else {origin.coord(n) for n in changes.masked} - origin.fabrics.keys()
