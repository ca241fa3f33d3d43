"""Which entries of a fabric's parameters and states belong to which nodes, and how they follow these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.fabric.layer.cells import params_of, states_of
from volumetric.fabric.layer.spec import Fabric
from volumetric.layers.base import LayerSpec


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Entries of one axis, of which nodes have one each, or share one.

    Attributes
    ----------
    axis : which
    width : numbers of an entry along the axis
    nodes : ids, int64 ``[n]``
    places : entry of each of them, int64 ``[n]``
    """

    axis: int
    width: int
    nodes: Array
    places: Array

    def of(self, places: Array) -> Array:
        """Indices along the axis of some entries."""
        return (places[:, None] * self.width + np.arange(self.width)).reshape(-1)

    def only(self, gone: Array) -> Array:
        """Return the entries that belong to none but `gone` nodes, rising."""
        mine = np.isin(self.nodes, gone)
        return np.setdiff1d(self.places[mine], self.places[~mine])

    def mask(self, places: Array, value: Array) -> Array:
        """Where in an array some entries are, bool in a shape that repeats to that of `value`."""
        found = np.zeros([size if axis == self.axis else 1 for axis, size in enumerate(value.shape)], bool)
        found.reshape(-1)[self.of(places)] = True
        return found

    def followed(self, value: Array, before: Entries, fresh: Array) -> Array:
        """Return `fresh` with what `value`, whose entries are `before`, has of the same nodes."""
        _, mine, theirs = np.intersect1d(self.nodes, before.nodes, assume_unique=True, return_indices=True)
        new, first = np.unique(self.places[mine], return_index=True)  # nodes that share an entry shared one before
        old = before.places[theirs[first]]
        made = np.moveaxis(fresh.copy(), self.axis, 0)
        made[self.of(new)] = np.moveaxis(value, self.axis, 0)[before.of(old)]
        return np.ascontiguousarray(np.moveaxis(made, 0, self.axis))


def param_entries(spec: Fabric) -> dict[str, Entries]:
    """Return them for each parameter and buffer that has any."""
    facts, h = spec.facts, spec.hidden
    every = np.arange(len(facts.order))
    outputs = facts.order[facts.senders_count :]
    found = {
        "slot": Entries(0, 1, facts.order, every),
        "kv.weight": Entries(0, 1, facts.order[: facts.senders_count], facts.groups),
        **{f"readout.{name}": Entries(0, 1, outputs, np.arange(facts.outputs)) for name in ("weight", "bias")},
    }
    if spec.dynamic:
        found["living"] = Entries(0, 1, facts.order, every)
    for port in spec.inputs:
        own = facts.order[facts.ports[port.name]]
        rows = Entries(0, h, own, np.arange(len(own)))
        found |= {f"ports.{port.name}.{name}": rows for name in ("weight", "bias")}
    for port in spec.outputs:
        if port.aggregate == "flatten":
            own = outputs[facts.ports[port.name]]
            found[f"ports.{port.name}.weight"] = Entries(1, h, own, np.arange(len(own)))
    for p in spec.populations:
        own = facts.order[facts.inputs : facts.senders_count][facts.populations[p.name]]
        sets = Entries(0, 1, own, facts.shares[p.name])
        found |= {f"cells.{p.name}.{of.name}": sets for of in params_of(p.cell, 1)}
    return found


def state_entries(spec: Fabric) -> dict[str, Entries]:
    """Return them for each state."""
    facts = spec.facts
    cells = facts.order[facts.inputs : facts.senders_count]
    found = {"shown": Entries(0, 1, cells, np.arange(facts.cells))}
    for p in spec.populations:
        own = cells[facts.populations[p.name]]
        found |= {f"{p.name}.{name}": Entries(0, 1, own, np.arange(len(own))) for name in states_of(p.cell)}
    if spec.remembered:
        found["past"] = Entries(1, 1, facts.order[: facts.senders_count], np.arange(facts.senders_count))
    return found


def fabrics_in(layers: Mapping[Any, LayerSpec]) -> dict[str, Fabric]:
    """Return the fabrics of a network, or of other named layers, by their paths; also those inside of containers."""
    return dict(_walk((str(where), spec) for where, spec in layers.items()))


def _walk(layers: Iterator[tuple[str, LayerSpec]]) -> Iterator[tuple[str, Fabric]]:
    for path, spec in layers:
        if isinstance(spec, Fabric):
            yield path, spec
        yield from _walk((f"{path}/{name}", child) for name, child in spec.children().items())


def the_fabric(layers: Mapping[Any, LayerSpec], at: str | None) -> tuple[str, Fabric]:
    """Return the path and the spec of the fabric at a path, or of the only one that there is.

    Raises
    ------
    SpecError : there is none, or no path tells which
    """
    found = fabrics_in(layers)
    known = ", ".join(map(repr, found))
    if at is None:
        if len(found) != 1:
            raise SpecError(
                f"the network has {len(found) or 'no'} fabrics", hint=f"at= is one of {known}" if found else None
            )
        [at] = found
    if at not in found:
        raise SpecError(f"there is no fabric at {at!r}", hint=f"fabrics are at {known}" if found else None)
    return at, found[at]


def places_of(spec: Fabric, nodes: object) -> Array:
    """Return where nodes, told by their ids, stand in the order of `facts`.

    Raises
    ------
    SpecError : there is no node of an id
    """
    order = spec.facts.order
    asked = np.atleast_1d(np.asarray(list(nodes) if not isinstance(nodes, int | np.integer) else nodes))  # pyright: ignore[reportArgumentType]  (checked below)
    if asked.size == 0:
        return np.zeros(0, np.int64)
    wrong = asked[~np.isin(asked, order)] if asked.dtype.kind in "iu" else asked
    if wrong.size:
        raise SpecError(f"the fabric has no node {wrong[0]}", hint=f"ids are of {order.min()} … {order.max()}")
    by_id = np.argsort(order)
    return np.unique(by_id[np.searchsorted(order[by_id], asked)])
